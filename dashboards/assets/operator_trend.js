// The history of one series: its latency with intervals, its control below on an axis of its own, and the speedup.
(() => {
  'use strict';

  const { charts } = window.pairbench;
  const { measured, numbers, says } = window.pairbench.operator.trend_words;
  const { lines, marked } = window.pairbench.operator.trend_lines;
  const LABEL = 78;
  // Between panels, in parts like theirs.
  const GAP = 0.45;
  const runs = (data, trend) => trend.runs.map((place) => data.runs[place]);

  // From top to bottom: latency, control, speedup and what is counted, as far as they are there; each a part of the height.
  function panels(trend) {
    const found = [{ axis: 'y', key: 'yaxis', part: 3.2, what: 'latency' }];
    if (trend.control_name && trend.control.length) {
      found.push({ axis: `y${found.length + 1}`, key: `yaxis${found.length + 1}`, part: 1, what: 'control' });
    }
    if (trend.speedup.length) {
      found.push({ axis: `y${found.length + 1}`, key: `yaxis${found.length + 1}`, part: 1, what: 'speedup' });
    }
    for (const [label, values] of trend.counts) {
      const axis = found.length + 1;
      found.push({ axis: `y${axis}`, key: `yaxis${axis}`, part: 0.8, what: label, values });
    }
    const whole = found.reduce((sum, panel) => sum + panel.part + GAP, -GAP);
    let top = 1;
    for (const panel of found) {
      panel.domain = [Math.max(top - panel.part / whole, 0), top];
      top -= (panel.part + GAP) / whole;
    }
    return found;
  }

  function axes(trend, list, log) {
    const of = {
      latency: [...trend.p50, ...trend.low, ...trend.high, ...trend.p95],
      control: trend.control,
      speedup: [...trend.speedup, ...trend.speedup_low, ...trend.speedup_high],
    };
    return Object.fromEntries(
      list.map(({ key, domain, what, values }) => {
        if (values) {
          return [key, { domain, rangemode: 'tozero', nticks: 3, tickformat: '~g' }];
        }
        const logged = log && what !== 'speedup';
        const ends = charts.range(of[what], logged);
        const ticks = logged ? { dtick: charts.steps(ends) } : { nticks: what === 'latency' ? 8 : 4 };
        return [key, { domain, type: logged ? 'log' : 'linear', ...ticks, range: ends, tickformat: '~g' }];
      }),
    );
  }

  // What each panel shows stands above it: beside so low an axis there is no room for words.
  function titles(trend, list) {
    const words = {
      latency: `${trend.latency} (${trend.unit})`,
      control: `P50 of the control, ${charts.text(trend.control_name, 30)} (${trend.unit})`,
      speedup: 'speedup over the baseline (x)',
    };
    return list.map(({ domain, what }) => ({
      xref: 'paper',
      x: 0,
      xanchor: 'left',
      yref: 'paper',
      y: domain[1],
      yanchor: 'bottom',
      yshift: 2,
      text: words[what] || what,
      showarrow: false,
      font: { size: 11, color: window.pairbench.colour('--muted') },
    }));
  }

  function ticks(data, trend, width) {
    const all = runs(data, trend);
    const step = Math.max(1, Math.ceil(all.length / Math.max(1, Math.floor((width - 80) / LABEL))));
    const places = all.map((_, at) => at).filter((at) => (all.length - 1 - at) % step === 0);
    return {
      tickvals: places,
      ticktext: places.map((at) => charts.lines(charts.text(all[at].at.slice(0, 10)), charts.text(all[at].commit, 12))),
    };
  }

  window.pairbench.operator.trend = (data, node) => {
    const state = { series: null, log: null };
    let chart = null;

    function made({ width }) {
      const { trend, implementation } = state.series;
      const list = panels(trend);
      const log = state.log ?? trend.log;
      const { shapes, notes, rows } = marked(trend, width, trend.runs.length);
      const traces = lines(data, trend, list, implementation, width);
      const names = traces.filter((one) => one.showlegend !== false).map((one) => one.name);
      const { below, legend } = charts.legend(names, width);
      return {
        traces,
        layout: {
          height: 300 + 110 * (list.length - 1) + 15 * rows + below,
          uirevision: `${state.series.id} ${log}`,
          margin: { l: 8, r: 38, t: 24 + 15 * rows, b: 44 + below },
          xaxis: {
            range: [-0.6, Math.max(trend.runs.length - 0.4, 0.6)],
            anchor: list[list.length - 1].axis,
            ...ticks(data, trend, width),
            tickangle: 0,
            ticklabeloverflow: 'allow',
            showgrid: false,
          },
          ...axes(trend, list, log),
          yaxis9: { overlaying: 'y', range: [0, 1], visible: false, fixedrange: true },
          legend,
          shapes,
          annotations: [...notes, ...titles(trend, list)],
        },
        click: (point, event) =>
          point.customdata !== undefined && charts.follow(data.runs[point.customdata].href, event),
      };
    }

    return {
      state,
      draw: () => chart && chart.draw(),
      whole: () => chart && chart.whole(),
      logged: () => state.log ?? state.series.trend.log,
      show(series) {
        state.series = series;
        if (!measured(series.trend)) {
          return;
        }
        if (chart) {
          chart.draw();
        } else {
          chart = charts.place(node, made);
        }
      },
      says: () => says(data, state.series),
      table: () => numbers(data, state.series),
      shown: () => measured(state.series.trend),
      tabled: () => state.series.trend.runs.length > 0,
    };
  };
})();
