// How latency and speedup go with one axis, all others held: lines with intervals, and where a variant and the baseline cross.
(() => {
  'use strict';

  const { charts, element, units } = window.pairbench;
  // Crossovers with a label in the chart; the sentence above it has all.
  const LABELS = 3;
  // Pixels of the chart beside its axis.
  const ASIDE = 100;
  const form = document.getElementById('scale');

  // The axes that are numbers and take several values.
  function axesOf(data) {
    const names = [...new Set(data.cases.flatMap(({ axes }) => Object.keys(axes)))];
    return names.filter((name) => {
      const values = data.cases.map(({ axes }) => axes[name]).filter((value) => value !== undefined);
      return values.every((value) => typeof value === 'number' && value > 0) && new Set(values).size > 2;
    });
  }

  const points = (data, several, axis) => new Set(several.map((one) => data.cases[one.case].axes[axis])).size;

  // What is held while one axis varies, in words, and the series of each such choice; those with the most points first.
  // Where no case differs from another in the axis alone, a size that is held may be one in proportion to it, as k = 2n.
  function held(data, axis) {
    const grouped = (word) => {
      const found = new Map();
      for (const one of data.series.filter(({ numbers }) => numbers.p50_ns)) {
        const { [axis]: here, ...rest } = data.cases[one.case].axes;
        const key = [...Object.entries(rest).map(([name, value]) => `${name}=${word(value, here)}`), one.mode].join(', ');
        if (here !== undefined) {
          found.set(key, [...(found.get(key) || []), one]);
        }
      }
      return [...found]
        .filter(([, several]) => points(data, several, axis) > 2)
        .sort((one, other) => points(data, other[1], axis) - points(data, one[1], axis));
    };
    const strict = grouped((value) => value);
    const ratio = (value, here) => Number((value / here).toPrecision(6));
    return strict.length ? strict : grouped((value, here) => (typeof value === 'number' ? `${ratio(value, here)} ${axis}` : value));
  }

  // The measured sizes as ticks, in one notation as in report/figures.py; the last is named, and from the first on all that have room.
  function ticks(values, width) {
    const sizes = [...new Set(values)].sort((one, other) => one - other);
    const last = sizes[sizes.length - 1];
    const binary = last >= 1e5 && sizes.every((size) => size < 2 ** 10 || size % 2 ** 10 === 0);
    const word = (size) => {
      const [scale, name] = [[2 ** 30, 'Gi'], [2 ** 20, 'Mi'], [2 ** 10, 'Ki']].find(([unit]) => binary && size % unit === 0) || [1, ''];
      return `${size / scale}${name}`;
    };
    const pixel = (size) => (Math.log(size / sizes[0]) / Math.log(last / sizes[0])) * (width - ASIDE);
    const half = (size) => word(size).length * 3.6 + 3;
    let free = -Infinity;
    const texts = sizes.map((size) => {
      if (size !== last && (pixel(size) - half(size) < free || pixel(size) + half(size) > pixel(last) - half(last))) {
        return '';
      }
      free = pixel(size) + half(size);
      return word(size);
    });
    return { tickvals: sizes, ticktext: texts, tickangle: 0 };
  }

  // Where a line of speedups goes through 1, between two points on logarithmic axes.
  function crossings(line) {
    const found = [];
    for (let at = 1; at < line.length; at += 1) {
      const [[x0, y0], [x1, y1]] = [line[at - 1], line[at]].map(([x, y]) => [Math.log(x), Math.log(y)]);
      if (y0 * y1 < 0) {
        found.push(Math.exp(x0 + ((x1 - x0) * y0) / (y0 - y1)));
      }
    }
    return found;
  }

  function line(data, name, several, of, axis, yaxis) {
    const shown = several
      .filter((one) => one.numbers[of])
      .map((one) => [data.cases[one.case].axes[axis], one])
      .sort((one, other) => one[0] - other[0]);
    const unit = of === 'speedup' ? 1 : 1e3; // latencies are drawn in us
    const value = (one, end) => (one.numbers[`${of}${end}`] ?? one.numbers[of]) / unit;
    const place = several[0].implementation;
    return {
      type: 'scatter',
      mode: 'lines+markers',
      name,
      x: shown.map(([x]) => x),
      y: shown.map(([, one]) => value(one, '')),
      error_y: {
        type: 'data',
        symmetric: false,
        array: shown.map(([, one]) => value(one, '_high') - value(one, '')),
        arrayminus: shown.map(([, one]) => value(one, '') - value(one, '_low')),
        thickness: 1.2,
        width: 2,
      },
      yaxis,
      line: { color: charts.colour(place), width: 1.5 },
      marker: { color: charts.colour(place), size: 6 },
      showlegend: yaxis === 'y',
      hovertext: shown.map(
        ([x, one]) =>
          `${charts.text(name, 40)}, ${charts.text(axis, 30)} ${x}: ${of === 'speedup' ? units.ratio(one.numbers.speedup) : units.duration(one.numbers.p50_ns)}`,
      ),
      hoverinfo: 'text',
    };
  }

  window.pairbench.operator.scaling = (data, node) => {
    const axes = axesOf(data).filter((axis) => held(data, axis).length);
    if (!axes.length) {
      return;
    }
    document.getElementById('scaling-panel').hidden = false;
    const state = { axis: axes[0], rest: 0 };
    const says = document.getElementById('scaling-says');
    let chart = null;

    function made({ width }) {
      const { axis } = state;
      const choices = held(data, axis);
      const [key, several] = choices[state.rest] || choices[0];
      const groups = new Map();
      several.forEach((one) => groups.set(one.implementation, [...(groups.get(one.implementation) || []), one]));
      const traces = [];
      const annotations = [];
      const told = [];
      for (const [place, own] of [...groups].sort((one, other) => one[0] - other[0])) {
        const name = charts.text(data.implementations[place], 30);
        traces.push(line(data, name, own, 'p50_ns', axis, 'y'));
        const speedups = line(data, name, own, 'speedup', axis, 'y2');
        if (speedups.x.length) {
          traces.push(speedups);
          crossings(speedups.x.map((x, at) => [x, speedups.y[at]])).forEach((x) => {
            const words = `${name} crosses 1x at ${axis} ≈ ${Number(x.toPrecision(2))}`;
            told.push(words);
            if (annotations.length >= LABELS) {
              return;
            }
            annotations.push({
              x: Math.log10(x),
              y: 0,
              yref: 'y2',
              text: charts.text(words, 60),
              font: { size: 11, color: charts.colour(place) },
              arrowhead: 2,
              ax: 0,
              ay: -22 - 14 * (annotations.length % 3),
            });
          });
        }
      }
      says.textContent = `${several[0].latency} and speedup on ${data.device} against ${axis}, with ${key || 'nothing else'} held. ${
        told.length ? `${told.join('; ')}.` : 'No variant crosses its baseline between two of these points.'
      }`;
      const { below, legend } = charts.legend(traces.filter((one) => one.showlegend).map((one) => one.name), width);
      const values = (axisName) => traces.filter((one) => one.yaxis === axisName).flatMap((one) => one.y);
      const title = (text, y) => ({
        xref: 'paper', x: 0, xanchor: 'left', yref: 'paper', y, yanchor: 'bottom', yshift: 2, text, showarrow: false,
        font: { size: 11, color: window.pairbench.colour('--muted') },
      });
      return {
        traces,
        layout: {
          height: 420 + below,
          margin: { l: 8, r: 20, t: 24, b: 44 + below },
          xaxis: { type: 'log', title: { text: charts.text(axis, 40) }, anchor: 'y2', ...ticks(traces.flatMap((one) => one.x), width) },
          yaxis: { domain: [0.47, 1], type: 'log', tickformat: '~g', range: charts.range(values('y'), true) },
          yaxis2: { domain: [0, 0.38], type: 'log', tickformat: '~g', dtick: charts.steps(charts.range([...values('y2'), 1], true)), range: charts.range([...values('y2'), 1], true) },
          shapes: [{ type: 'line', xref: 'paper', x0: 0, x1: 1, yref: 'y2', y0: 1, y1: 1, line: { color: window.pairbench.colour('--strong-line'), dash: 'dash', width: 1.5 } }],
          legend,
          annotations: [...annotations, title(`${several[0].latency} (us)`, 1), title('speedup over the baseline (x)', 0.38)],
        },
      };
    }

    function offer() {
      const fill = (select, values, at) => {
        select.replaceChildren(...values.map((text, number) => element('option', { value: number }, window.pairbench.short(text, 80))));
        select.value = at;
        select.closest('label').hidden = values.length < 2;
      };
      fill(form.elements.axis, axes, axes.indexOf(state.axis));
      fill(form.elements.rest, held(data, state.axis).map(([key]) => key || 'all'), state.rest);
    }

    form.hidden = false;
    form.addEventListener('submit', (event) => event.preventDefault());
    form.addEventListener('change', (event) => {
      state.rest = event.target === form.elements.axis ? 0 : Number(form.elements.rest.value);
      state.axis = axes[Number(form.elements.axis.value)];
      offer();
      chart.draw();
    });
    offer();
    chart = charts.place(node, made);
  };
})();
