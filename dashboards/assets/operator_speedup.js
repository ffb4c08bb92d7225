// The speedup of each variant in each case: a row each, where it loses told by shape.
(() => {
  'use strict';

  const { charts, units } = window.pairbench;
  const SHAPES = { faster: 'circle', slower: 'triangle-down', open: 'diamond-open' };
  const WORDS = { faster: 'faster', slower: 'slower than the baseline', open: 'not proven either way' };
  const ROW = 17;
  const CLOSE = 15;
  // Rows from which they stand closer, scroll in a box, and the axis stands where it is seen first.
  const MANY = 60;
  // Pixels of a letter, near enough to make room.
  const LETTER = 7;
  const BOLD = 7.5;

  function hover(data, point) {
    const [place, group, , speedup, low, high, state] = point;
    const series = data.series[place];
    const run = data.runs[series.trend.runs[series.trend.runs.length - 1]];
    return charts.lines(
      `<b>${charts.text(data.implementations[series.implementation], 40)}</b> ${charts.text(data.speedup.groups[group], 60)}`,
      `${units.ratio(speedup)} (${units.between(low, high, units.ratio)}), ${WORDS[state]}`,
      `P50 ${units.duration(series.numbers.p50_ns)}, P95 ${units.duration(series.numbers.p95_ns)} (${series.latency})`,
      series.bound === 'host' &&
        `host-bound: ${units.duration(series.numbers.host_p50_ns)} to issue ${units.duration(series.numbers.device_p50_ns)} of work`,
      run && charts.text(`run ${run.at}${run.commit ? `, commit ${run.commit}` : ''}`),
    );
  }

  function trace(data, place, points) {
    const of = (at) => points.map((point) => point[at]);
    const colour = charts.colour(place);
    return {
      type: 'scatter',
      mode: 'markers',
      name: charts.text(data.implementations[place], 30),
      showlegend: data.speedup.shared,
      x: of(3),
      y: of(2),
      error_x: {
        type: 'data',
        symmetric: false,
        array: points.map((point) => Math.max((point[5] ?? point[3]) - point[3], 0)),
        arrayminus: points.map((point) => Math.max(point[3] - (point[4] ?? point[3]), 0)),
        color: colour,
        thickness: 1.5,
        width: 0,
      },
      marker: {
        color: colour,
        size: 9,
        symbol: points.map((point) => SHAPES[point[6]]),
        line: { color: colour, width: 1.5 },
      },
      customdata: of(0),
      hovertext: points.map((point) => hover(data, point)),
      hoverinfo: 'text',
    };
  }

  function note(x, y, text, changes) {
    return {
      xref: 'paper',
      x,
      xanchor: 'left',
      y,
      yanchor: 'middle',
      text,
      showarrow: false,
      align: 'left',
      ...changes,
    };
  }

  // What stands in the plot beside the dots: names of the groups, from the left end of all, and why a row has no dot.
  function notes(data, width, left) {
    const { groups, heads, points, shared } = data.speedup;
    const look = { xshift: -left, bgcolor: window.pairbench.colour('--ground') };
    const named = shared
      ? []
      : groups.map((group, at) => note(0, heads[at], `<b>${charts.text(group, Math.floor(width / BOLD))}</b>`, look));
    const missing = points.filter((point) => point[6] === 'none');
    const why = shared
      ? []
      : missing.map((point) =>
          note(0, point[2], charts.text(point[7], 40), {
            xshift: 4,
            font: { color: window.pairbench.colour('--muted') },
          }),
        );
    return [...named, ...why];
  }

  function labels(data, narrow) {
    const { groups, heads, points, shared } = data.speedup;
    const names = shared ? groups : points.map((point) => data.implementations[data.series[point[0]].implementation]);
    return {
      tickvals: shared ? heads : points.map((point) => point[2]),
      ticktext: names.map((name) => charts.text(name, letters(data, narrow))),
    };
  }

  // Return how many letters the longest name beside the rows may have and has.
  function letters(data, narrow) {
    const most = narrow ? 16 : data.speedup.shared ? 44 : 24;
    const names = data.speedup.shared ? data.speedup.groups : data.implementations;
    return Math.min(most, Math.max(...names.map((name) => name.length)));
  }

  window.pairbench.operator.speedup = (data, node, choose) => {
    const { points, rows, shared } = data.speedup;
    const known = points.filter((point) => point[6] !== 'none');
    if (!known.length) {
      node.hidden = true;
      return null;
    }
    const state = { log: data.speedup.log };

    const many = rows > MANY;

    function made({ width, narrow }) {
      const left = letters(data, narrow) * LETTER + 12;
      const ends = charts.range(
        [1, ...known.flatMap((point) => [point[3], point[4] ?? point[3], point[5] ?? point[3]])],
        state.log,
      );
      const places = [...new Set(known.map((point) => data.series[point[0]].implementation))].sort(
        (one, other) => one - other,
      );
      const names = places.map((place) => charts.text(data.implementations[place], 30));
      const { below, legend } = shared ? charts.legend(names, width) : { below: 0 };
      const of = window.pairbench.colour;
      return {
        traces: places.map((place) =>
          trace(
            data,
            place,
            known.filter((point) => data.series[point[0]].implementation === place),
          ),
        ),
        layout: {
          height: rows * (many ? CLOSE : ROW) + 76 + below,
          uirevision: `speedup ${state.log}`,
          xaxis: {
            type: state.log ? 'log' : 'linear',
            range: ends,
            dtick: state.log ? charts.steps(ends) : undefined,
            tickformat: '~g',
            side: many ? 'top' : 'bottom',
            title: { text: narrow ? 'speedup (x)' : 'speedup over the baseline (x), 95 % interval' },
          },
          yaxis: {
            range: [rows - 0.4, -0.6],
            automargin: false,
            fixedrange: true,
            showgrid: false,
            ticks: '',
            zeroline: false,
            ...labels(data, narrow),
          },
          shapes: [
            {
              type: 'rect',
              xref: 'x',
              yref: 'paper',
              x0: state.log ? 1e-9 : 0,
              x1: 1,
              y0: 0,
              y1: 1,
              layer: 'below',
              line: { width: 0 },
              fillcolor: of('--bad'),
              opacity: 0.07,
            },
            {
              type: 'line',
              xref: 'x',
              yref: 'paper',
              x0: 1,
              x1: 1,
              y0: 0,
              y1: 1,
              layer: 'below',
              line: { width: 1.2, color: of('--text') },
            },
          ],
          annotations: notes(data, width, left),
          margin: { l: left, r: 12, t: 8, b: (many ? 8 : 48) + below },
          legend,
        },
        click: (point) => choose(point.customdata),
      };
    }

    const chart = charts.place(node, made);
    return { ...chart, state };
  };
})();
