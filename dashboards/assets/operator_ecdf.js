// How the samples of the newest run lie, of all implementations of a case: for each latency the part that was as fast.
(() => {
  'use strict';

  const { charts, units } = window.pairbench;
  const HEIGHT = 330;
  const WIDE = 4;
  // A tail longer than this, in 99th percentiles, is left for a zoom: it would press all else together.
  const TAIL = 1.5;

  const median = (series) => series.quantiles[50];

  function hover(data, series, at) {
    return charts.lines(
      `<b>${charts.text(data.implementations[series.implementation], 40)}</b>`,
      `${at} % of samples within ${units.duration(series.quantiles[at])}`,
      `median ${units.duration(median(series))}`,
    );
  }

  function trace(data, series, chosen, scale) {
    const place = series.implementation;
    return {
      type: 'scatter',
      mode: 'lines',
      name: charts.text(data.implementations[place], 30),
      x: series.quantiles.map((ns) => ns / scale),
      y: series.quantiles.map((_, at) => at),
      line: { color: charts.colour(place), dash: charts.dash(place), width: series === chosen || !place ? 3 : 1.5 },
      hovertext: series.quantiles.map((_, at) => hover(data, series, at)),
      hoverinfo: 'text',
    };
  }

  window.pairbench.operator.ecdf = (data, node) => {
    const state = { series: null, log: null };
    let chart = null;

    const shown = () =>
      data.series.filter(
        (one) => one.case === state.series.case && one.mode === state.series.mode && one.quantiles.length > 1,
      );

    function spread() {
      const medians = shown().map(median);
      return Math.max(...medians) / Math.min(...medians);
    }

    const logged = () => state.log ?? spread() >= WIDE;

    function ends() {
      const high = Math.max(...shown().map((one) => one.quantiles[99]));
      const most = Math.max(...shown().map((one) => one.quantiles[100]));
      return {
        low: Math.min(...shown().map((one) => one.quantiles[0])),
        high: most > TAIL * high ? high : most,
        cut: most > TAIL * high ? most : null,
      };
    }

    function made({ width }) {
      const log = logged();
      const { low, high } = ends();
      const found = shown();
      const names = found.map((one) => charts.text(data.implementations[one.implementation], 30));
      const { below, legend } = charts.legend(names, width);
      const [scale, unit] = charts.unit(log ? low : high);
      const across = charts.range([low / scale, high / scale], log, 0.002);
      const line = (y, text) => ({
        shape: {
          type: 'line',
          xref: 'paper',
          x0: 0,
          x1: 1,
          y0: y,
          y1: y,
          layer: 'below',
          line: { color: window.pairbench.colour('--strong-line'), width: 1, dash: 'dot' },
        },
        note: {
          xref: 'paper',
          x: 1,
          xanchor: 'right',
          y,
          yanchor: y > 90 ? 'top' : 'bottom',
          text,
          showarrow: false,
          font: { size: 11, color: window.pairbench.colour('--muted') },
        },
      });
      const guides = [line(50, 'P50'), line(95, 'P95')];
      return {
        traces: found.map((one) => trace(data, one, state.series, scale)),
        layout: {
          height: HEIGHT + below,
          margin: { l: 8, r: 12, t: 8, b: 48 + below },
          uirevision: `${state.series.case} ${state.series.mode} ${log}`,
          xaxis: {
            type: log ? 'log' : 'linear',
            range: across,
            dtick: log ? charts.steps(across) : undefined,
            nticks: 7,
            tickformat: '~g',
            title: { text: `${state.series.latency} (${unit})` },
          },
          yaxis: {
            range: [-2, 102],
            fixedrange: true,
            tickvals: [0, 25, 50, 75, 100],
            title: { text: '% of the samples' },
          },
          legend,
          shapes: guides.map((guide) => guide.shape),
          annotations: guides.map((guide) => guide.note),
        },
      };
    }

    function says() {
      const { cut } = ends();
      const told = shown().map(
        (one) =>
          `${window.pairbench.short(data.implementations[one.implementation], 30)} ${units.duration(median(one))}`,
      );
      const first = told.length > 4 ? [...told.slice(0, 4), `${told.length - 4} more`] : told;
      return `Medians: ${first.join(', ')}.${cut ? ` The slowest sample took ${units.duration(cut)}; the whole chart shows it.` : ''}`;
    }

    return {
      state,
      logged,
      draw: () => chart && chart.draw(),
      whole: () => chart && chart.whole(),
      show(series) {
        state.series = series;
        if (!shown().length) {
          return;
        }
        if (chart) {
          chart.draw();
        } else {
          chart = charts.place(node, made);
        }
      },
      says: () =>
        shown().length
          ? says()
          : 'The newest run has no samples of this case: it was not measured, or they have been removed from the store.',
      table: () => ({
        caption: 'Latencies of the newest run by implementation',
        heads: ['Implementation', 'Least', '5 %', '25 %', 'Median', '75 %', '95 %', '99 %', 'Most'],
        rows: shown().map((one) => [
          window.pairbench.short(data.implementations[one.implementation], 60),
          ...[0, 5, 25, 50, 75, 95, 99, 100].map((at) => units.duration(one.quantiles[at])),
        ]),
      }),
      shown: () => shown().length > 0,
    };
  };
})();
