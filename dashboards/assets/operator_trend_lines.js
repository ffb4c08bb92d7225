// What a trend is drawn with: dots with intervals, levels, runs without a value, and lines where something happened.
(() => {
  'use strict';

  const { charts } = window.pairbench;
  const { hover } = window.pairbench.operator.trend_words;
  const LETTER = 6.2;
  const DASHES = { era: 'dot', definition: 'solid' };
  const KINDS = {
    code: '--bad',
    machine: '--unsure',
    environment: '--series-4',
    control: '--muted',
    era: '--muted',
    definition: '--text',
  };

  // One line of dots, with intervals where they are known.
  function dots(name, y, changes, low, high) {
    const reach = (ends, sign) =>
      y.map((value, at) => (ends && ends[at] && value ? Math.max(sign * (ends[at] - value), 0) : 0));
    const error =
      low && low.length
        ? {
            type: 'data',
            symmetric: false,
            array: reach(high, 1),
            arrayminus: reach(low, -1),
            thickness: 1.2,
            width: 0,
            color: changes.marker.color,
          }
        : undefined;
    return {
      type: 'scatter',
      mode: 'markers',
      name,
      x: y.map((_, at) => at),
      y,
      error_y: error,
      hoverinfo: 'text',
      ...changes,
    };
  }

  function levels(steps, axis, colour, name) {
    const x = steps.flatMap(([start, stop]) => [start - 0.5, stop + 0.5, null]);
    const y = steps.flatMap(([, , value, end = value]) => [value, end, null]);
    return {
      type: 'scatter',
      mode: 'lines',
      name,
      x,
      y,
      yaxis: axis,
      line: { color: colour, width: 2 },
      hoverinfo: 'skip',
      showlegend: axis === 'y',
    };
  }

  // What is counted holds until it takes another value, or a run has none.
  function counted(name, y, axis, texts, links) {
    return {
      type: 'scatter',
      mode: 'lines+markers',
      name,
      x: y.map((_, at) => at),
      y,
      yaxis: axis,
      line: { color: charts.colour(5), width: 2, shape: 'hv' },
      marker: { color: charts.colour(5), size: 3 },
      hovertext: texts,
      hoverinfo: 'text',
      customdata: links,
      showlegend: false,
    };
  }

  // Lines over all panels, and labels above them in as many rows as keep them apart.
  function marked(trend, width, number) {
    const of = window.pairbench.colour;
    const shapes = [];
    const notes = [];
    const ends = [];
    for (const [at, kind, label] of [...trend.marks].sort((one, other) => one[0] - other[0])) {
      if (kind === 'gap') {
        continue;
      }
      const colour = of(KINDS[kind] || '--muted');
      shapes.push({
        type: 'line',
        xref: 'x',
        yref: 'paper',
        x0: at - 0.5,
        x1: at - 0.5,
        y0: 0,
        y1: 1,
        layer: 'below',
        line: { color: colour, width: 1.5, dash: DASHES[kind] || 'dash' },
      });
      if (!label) {
        continue;
      }
      const told = window.pairbench.short(label, Math.max(12, Math.floor(width / LETTER / 1.6)));
      const pixel = ((at + 0.1) / number) * (width - 90);
      const left = pixel > 0.55 * width;
      const span = told.length * LETTER + 8;
      const [start, stop] = left ? [pixel - span, pixel] : [pixel, pixel + span];
      const free = ends.findIndex((end) => end < start);
      const row = free < 0 ? ends.length : free;
      ends[row] = stop;
      notes.push({
        x: at - 0.5,
        xref: 'x',
        xanchor: left ? 'right' : 'left',
        y: 1,
        yref: 'paper',
        yanchor: 'bottom',
        yshift: 18 + 15 * row,
        text: charts.text(told, 200),
        showarrow: false,
        font: { size: 11, color: colour },
        align: 'left',
      });
    }
    return { shapes, notes, rows: ends.length };
  }

  function lines(data, trend, list, implementation, width) {
    // As large as so many have room for.
    const size = Math.min(8, Math.max(3, (2 * width) / trend.runs.length));
    const texts = trend.runs.map((_, at) => hover(data, trend, at));
    const links = trend.runs;
    const colour = charts.colour(implementation || 1);
    const strong = window.pairbench.colour('--text');
    const found = [
      dots('P95', trend.p95, {
        marker: { color: charts.colour(6), symbol: 'triangle-down-open', size: 0.8 * size },
        hovertext: texts,
        customdata: links,
      }),
      dots(
        'P50, 95 % interval',
        trend.p50,
        { marker: { color: colour, size }, hovertext: texts, customdata: links },
        trend.low,
        trend.high,
      ),
      levels(trend.levels, 'y', strong, 'level'),
    ];
    for (const { axis, what, values } of list) {
      if (what === 'control') {
        found.push(
          dots(`control: ${charts.text(trend.control_name, 24)}`, trend.control, {
            yaxis: axis,
            marker: { color: charts.colour(0), size: 0.75 * size, symbol: 'square' },
            hovertext: texts,
            customdata: links,
          }),
        );
      } else if (what === 'speedup') {
        found.push(
          dots(
            'speedup',
            trend.speedup,
            {
              yaxis: axis,
              marker: { color: charts.colour(3), size: 0.8 * size, symbol: 'diamond' },
              hovertext: texts,
              customdata: links,
            },
            trend.speedup_low,
            trend.speedup_high,
          ),
        );
        found.push(levels(trend.speedup_levels, axis, strong, 'level'));
      } else if (values) {
        found.push(counted(what, values, axis, texts, links));
      }
    }
    return [...found, ...gaps(trend, texts)];
  }

  function gaps(trend, texts) {
    const at = trend.marks.filter((mark) => mark[1] === 'gap').map((mark) => mark[0]);
    return at.length
      ? [
          {
            type: 'scatter',
            mode: 'markers',
            name: 'no value',
            x: at,
            y: at.map(() => 0.03),
            yaxis: 'y9',
            marker: { symbol: 'x-thin', size: 9, line: { width: 2, color: window.pairbench.colour('--worst') } },
            hovertext: at.map((place) => texts[place]),
            hoverinfo: 'text',
            customdata: at.map((place) => trend.runs[place]),
          },
        ]
      : [];
  }

  window.pairbench.operator.trend_lines = { lines, marked };
})();
