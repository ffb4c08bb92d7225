// What the series reach below what the device was measured to reach, both axes logarithmic.
(() => {
  'use strict';

  const { charts, element, short, units } = window.pairbench;
  const HEIGHT = 400;
  // Pixels of the chart that are no plot, near enough to turn a label along its line.
  const ASIDE = [62, 56];
  // Pixels of such a label, about.
  const WORDS = 130;
  // Parts of the slope where it may stand.
  const PLACES = [0.3, 0.45, 0.6, 0.75];

  function hover(data, point) {
    const [place, label, intensity, tflops, gbps, fraction] = point;
    const series = data.series[place];
    return charts.lines(
      `<b>${charts.text(data.implementations[series.implementation], 40)}</b> ${charts.text(label, 60)}`,
      `${units.significant(tflops)} TFLOP/s, ${units.significant(gbps)} GB/s`,
      `${units.significant(intensity)} FLOP a byte${fraction === null ? '' : `, ${units.percent(fraction)} of its roof`}`,
      series.numbers.device_p50_ns && `${units.duration(series.numbers.device_p50_ns)} on the device`,
    );
  }

  function dots(data, all, place, chosen) {
    const points = all.filter((point) => data.series[point[0]].implementation === place);
    const here = (point) =>
      chosen && data.series[point[0]].case === chosen.case && data.series[point[0]].mode === chosen.mode;
    return {
      type: 'scatter',
      mode: 'markers',
      name: charts.text(data.implementations[place], 30),
      x: points.map((point) => point[2]),
      y: points.map((point) => point[3]),
      marker: {
        color: charts.colour(place),
        symbol: charts.symbol(place),
        size: points.map((point) => (here(point) ? 12 : 8)),
        opacity: 1,
        line: { width: 1.5, color: charts.colour(place) },
      },
      customdata: points.map((point) => point[0]),
      hovertext: points.map((point) => hover(data, point)),
      hoverinfo: 'text',
    };
  }

  // A line joins the implementations of a case, which stand one above the other.
  function columns(data, all) {
    const found = new Map();
    for (const point of all) {
      const { case: at, mode } = data.series[point[0]];
      found.set(`${at} ${mode}`, [...(found.get(`${at} ${mode}`) || []), point]);
    }
    const x = [];
    const y = [];
    for (const points of found.values()) {
      const heights = points.map((point) => point[3]);
      x.push(points[0][2], points[0][2], null);
      y.push(Math.min(...heights), Math.max(...heights), null);
    }
    const line = { color: window.pairbench.colour('--strong-line'), width: 1 };
    return { type: 'scatter', mode: 'lines', x, y, line, opacity: 0.6, hoverinfo: 'skip', showlegend: false };
  }

  function roof(one) {
    const slope = one.name === 'copy';
    const line = { color: window.pairbench.colour('--text'), width: 1.6, dash: slope ? 'solid' : 'dash' };
    return { type: 'scatter', mode: 'lines', x: one.x, y: one.y, line, hoverinfo: 'skip', showlegend: false };
  }

  // A label along the slope, and beside a flat roof.
  function named(one, highest, ends, width, points) {
    const [x, y] = [one.x.map(Math.log10), one.y.map(Math.log10)];
    const label = { text: charts.text(one.label, 40), showarrow: false, font: { size: 11 } };
    const scale = [(width - ASIDE[0]) / (ends.x[1] - ends.x[0]), (HEIGHT - ASIDE[1]) / (ends.y[1] - ends.y[0])];
    const near = ([across, high]) =>
      Math.min(
        ...points.map((point) =>
          Math.hypot((Math.log10(point[2]) - across) * scale[0], (Math.log10(point[3]) - high) * scale[1]),
        ),
      );
    if (one.name !== 'copy') {
      // At the end that is further from the points; at the left one below the roof where the slope goes on above it, and only where it
      // ends within the chart.
      const left =
        (ends.x[1] - x[0]) * scale[0] > WORDS + 20 &&
        near([x[0] + WORDS / 2 / scale[0], y[0]]) > near([x[1] - WORDS / 2 / scale[0], y[1]]) + 1;
      const side = left ? { x: x[0], xanchor: 'left', xshift: 4 } : { x: x[1], xanchor: 'right', xshift: -4 };
      return { ...label, ...side, y: y[0], yanchor: left && one.y[0] < highest ? 'top' : 'bottom' };
    }
    const turn = Math.atan2((y[1] - y[0]) * scale[1], (x[1] - x[0]) * scale[0]);
    const up = (part) => [x[0] + (x[1] - x[0]) * part, y[0] + (y[1] - y[0]) * part];
    // Where it is furthest from the points, above the line by the height of a letter.
    const at = PLACES.map(up).sort((one, other) => near(other) - near(one))[0];
    return {
      ...label,
      x: at[0],
      y: at[1],
      textangle: (-turn * 180) / Math.PI,
      xshift: -11 * Math.sin(turn),
      yshift: 11 * Math.cos(turn),
    };
  }

  window.pairbench.operator.roofline = (data, node, choose) => {
    const { roofline } = data;
    const state = { chosen: null };
    const form = document.getElementById('roofs');
    const dtypes = [...new Set(roofline.points.map((point) => point[6]))].sort();
    const [dtype, implementation] = [form.elements['roof-dtype'], form.elements['roof-implementation']];

    // A dtype has its own roof, so one alone is often what can be read.
    function offered() {
      const names = [...new Set(roofline.points.map((point) => data.series[point[0]].implementation))];
      const choices = [
        [dtype, dtypes.map((name) => [name, name || 'none'])],
        [implementation, names.sort((one, other) => one - other).map((place) => [place, short(data.implementations[place], 40)])],
      ];
      for (const [select, values] of choices) {
        select.replaceChildren(...[['', 'all'], ...values].map(([value, text]) => element('option', { value }, text)));
        select.closest('label').hidden = values.length < 2;
      }
      form.hidden = choices.every(([, values]) => values.length < 2);
      form.addEventListener('submit', (event) => event.preventDefault());
      form.addEventListener('change', () => chart && chart.draw());
    }

    function wanted() {
      const of = (point) => String(data.series[point[0]].implementation);
      return roofline.points.filter(
        (point) =>
          (dtype.selectedIndex < 1 || point[6] === dtype.value) &&
          (implementation.selectedIndex < 1 || of(point) === implementation.value),
      );
    }

    function made({ width }) {
      const ends = { x: roofline.x.map(Math.log10), y: roofline.y.map(Math.log10) };
      const points = wanted();
      // What has no dtype may be below any roof.
      const roofs = roofline.roofs.filter((one) => one.name === 'copy' || dtype.selectedIndex < 1 || [one.name, ''].includes(dtype.value));
      const places = [...new Set(points.map((point) => data.series[point[0]].implementation))].sort(
        (one, other) => one - other,
      );
      const highest = Math.max(...roofs.map((one) => one.y[1]));
      const names = places.map((place) => charts.text(data.implementations[place], 30));
      const { below, legend } = charts.legend(names, width);
      return {
        traces: [...roofs.map(roof), columns(data, points), ...places.map((place) => dots(data, points, place, state.chosen))],
        layout: {
          height: HEIGHT + below,
          margin: { l: 8, r: 12, t: 8, b: 48 + below },
          uirevision: 'roofline',
          xaxis: {
            type: 'log',
            range: ends.x,
            dtick: charts.steps(ends.x),
            tickformat: '~g',
            title: { text: 'FLOP a byte that the case demands' },
          },
          yaxis: {
            type: 'log',
            range: ends.y,
            dtick: charts.steps(ends.y),
            tickformat: '~g',
            title: { text: 'TFLOP/s' },
          },
          legend,
          annotations: roofs.map((one) => named(one, highest, ends, width, points)),
        },
        click: (point) => point.customdata !== undefined && choose(point.customdata),
      };
    }

    let chart = null;
    offered();
    return {
      show(series) {
        state.chosen = series;
        if (chart) {
          chart.draw();
        } else {
          chart = charts.place(node, made);
        }
      },
    };
  };
})();
