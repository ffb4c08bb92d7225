// Which kernels a call of each implementation runs, and for how long: a bar each, a part for each kernel.
(() => {
  'use strict';

  const { charts, element, units } = window.pairbench;
  const COLOURED = 7;
  const PATTERNS = ['', '/', 'x', '.', '\\', '-', '|'];
  const ROW = 34;
  // Longest over shortest call from which bars of time would hide the short ones.
  const FAR = 12;
  // Pixels of a number and a time within a bar, and of the chart that are no bars.
  const TOLD = 96;
  const ASIDE = 140;

  const total = (series) => series.kernels.reduce((sum, [, , ns]) => sum + (ns || 0), 0);

  window.pairbench.operator.kernels = (data, node) => {
    const state = { series: null, share: null };
    let chart = null;

    const same = () => data.series.filter((one) => one.case === state.series.case && one.mode === state.series.mode);
    const shown = () => same().filter((one) => one.kernels && one.kernels.length && total(one) > 0);

    function shared() {
      const times = shown().map(total);
      return state.share ?? Math.max(...times) / Math.min(...times) >= FAR;
    }

    // Kernels of the case, what takes longest first: its place here is its number and its colour.
    function ranked() {
      const times = new Map();
      for (const one of shown()) {
        for (const [kernel, , ns] of one.kernels) {
          times.set(kernel, Math.max(times.get(kernel) || 0, (ns || 0) / (shared() ? total(one) : 1)));
        }
      }
      return [...times.keys()].sort((one, other) => times.get(other) - times.get(one));
    }

    const shade = (rank) => (rank < COLOURED ? charts.colour(rank + 1) : charts.colour(0));

    // A part of a bar says its place in the table, and how long it takes where there is room: a number alone would read as a count.
    function trace(kernel, rank, found, share, scale, widest) {
      const of = found.map((one) => one.kernels.filter(([place]) => place === kernel));
      const time = of.map((parts) => parts.reduce((sum, [, , ns]) => sum + (ns || 0), 0));
      const count = of.map((parts) => parts.reduce((sum, [, number]) => sum + number, 0));
      return {
        type: 'bar',
        orientation: 'h',
        x: time.map((ns, at) => (ns ? (share ? (100 * ns) / total(found[at]) : ns / scale) : null)),
        y: found.map((_, at) => at),
        text: time.map((ns, at) => {
          const part = ns / total(found[at]);
          const room = widest * (share ? part : ns / scale);
          return ns ? `#${rank + 1}${room > TOLD ? ` ${share ? units.percent(part) : units.duration(ns)}` : ''}` : '';
        }),
        textposition: 'inside',
        insidetextanchor: 'middle',
        textangle: 0,
        insidetextfont: { color: window.pairbench.colour('--text') },
        marker: {
          color: charts.tint(shade(rank), 0.45),
          line: { color: shade(rank), width: 1 },
          pattern: { shape: PATTERNS[Math.floor(rank / COLOURED) % PATTERNS.length] },
        },
        hovertext: time.map((ns, at) =>
          charts.lines(
            `<b>#${rank + 1}: ${charts.text(data.kernels[kernel].name, 60)}</b>`,
            charts.text(data.implementations[found[at].implementation], 40),
            `${units.count(count[at])} a call, ${units.duration(ns)} together, ${units.percent(ns / total(found[at]))}`,
          ),
        ),
        hoverinfo: 'text',
      };
    }

    function made({ narrow, width }) {
      const found = shown();
      const share = shared();
      // Beside the longest bar its time has to fit.
      const room = narrow ? 1.45 : 1.22;
      const most = Math.max(...found.map(total));
      const [scale, unit] = charts.unit(most);
      const widest = (width - ASIDE) / room / (share ? 1 : most / scale);
      return {
        traces: ranked().map((kernel, rank) => trace(kernel, rank, found, share, scale, widest)),
        layout: {
          barmode: 'stack',
          bargap: 0.3,
          showlegend: false,
          height: found.length * ROW + 60,
          uirevision: `${state.series.case} ${state.series.mode} ${share}`,
          uniformtext: { mode: 'hide', minsize: 10 },
          xaxis: share
            ? { range: [0, 100 * room], tickvals: [0, 25, 50, 75, 100], title: { text: '% of the time in kernels' } }
            : {
                range: [0, (room * most) / scale],
                tickformat: '~g',
                nticks: 6,
                title: { text: `time of a call in kernels (${unit})` },
              },
          yaxis: {
            range: [found.length - 0.5, -0.5],
            fixedrange: true,
            ticks: '',
            showgrid: false,
            tickvals: found.map((_, at) => at),
            ticktext: found.map((one) =>
              one === state.series
                ? `<b>${charts.text(data.implementations[one.implementation], narrow ? 16 : 24)}</b>`
                : charts.text(data.implementations[one.implementation], narrow ? 16 : 24),
            ),
          },
          annotations: found.map((one, at) => ({
            x: share ? 100 : total(one) / scale,
            y: at,
            xanchor: 'left',
            xshift: 4,
            text: units.duration(total(one)),
            showarrow: false,
            font: { size: 11 },
          })),
        },
      };
    }

    function says() {
      const without = same().filter((one) => !shown().includes(one));
      const told = shown().map((one) => {
        const number = one.kernels.reduce((sum, [, count]) => sum + count, 0);
        return `${window.pairbench.short(data.implementations[one.implementation], 30)} ${units.count(number)}`;
      });
      const why = without.map(
        (one) =>
          `${window.pairbench.short(data.implementations[one.implementation], 30)} (${one.launch_status || one.status})`,
      );
      const few = (list) => (list.length > 4 ? [...list.slice(0, 4), `${list.length - 4} more`] : list).join(', ');
      return [
        told.length ? `Kernels a call: ${few(told)}.` : 'Which kernels ran is not known.',
        why.length ? `Not counted: ${few(why)}.` : '',
      ]
        .join(' ')
        .trim();
    }

    function rows() {
      const order = ranked();
      return shown().flatMap((one) =>
        [...one.kernels]
          .sort((first, second) => (second[2] || 0) - (first[2] || 0))
          .map(([kernel, count, ns]) => {
            const rank = order.indexOf(kernel);
            const { name, whole } = data.kernels[kernel];
            return [
              window.pairbench.short(data.implementations[one.implementation], 60),
              element(
                'span',
                {},
                element('span', { class: 'swatch', style: `background:${shade(rank)}`, 'aria-hidden': 'true' }),
                `#${rank + 1}`,
              ),
              element('bdi', { title: whole }, name),
              units.count(count),
              units.duration(ns),
              units.percent((ns || 0) / total(one)),
            ];
          }),
      );
    }

    return {
      state,
      shared,
      draw: () => chart && chart.draw(),
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
      says,
      table: () => ({
        caption: 'Kernels of a call by implementation, the longest first',
        heads: ['Implementation', 'Part of the bar', 'Kernel', 'Times a call', 'Time together', 'Share'],
        rows: rows(),
      }),
      shown: () => shown().length > 0,
    };
  };
})();
