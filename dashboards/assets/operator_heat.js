// Which quantity the heat map shows: the speedup, as the page has it without scripts, or peak memory or launches beside the baseline's.
(() => {
  'use strict';

  const { element, units } = window.pairbench;
  // Shades on either side of 1x, and the logarithm of the ratio from which the shade is the strongest: as in site/marks.py.
  const STEPS = 5;
  const LARGEST = Math.log(8);
  const QUANTITIES = {
    memory: {
      column: 'peak_bytes',
      words: 'peak memory',
      caption: 'Peak memory above the inputs over that of the baseline, both where one points at it',
      text: (own, baseline) => (own && baseline ? units.ratio(own / baseline) : units.size(own)),
      title: (own, baseline) => `${units.size(own)}, baseline ${units.size(baseline)}`,
    },
    launches: {
      column: 'launches_per_call',
      words: 'launches',
      caption: 'Launches by the host a call: of the baseline, then of the variant',
      text: (own, baseline) => `${units.count(baseline)} \u2192 ${units.count(own)}`,
      title: (own, baseline) => `${units.count(own)} launches a call, baseline ${units.count(baseline)}`,
    },
  };

  // Less is better: the shade of a speedup as large as the ratio of the baseline's count to the variant's.
  function shade(own, baseline) {
    const log = own === baseline ? 0 : Math.log(baseline / own);
    const part = Math.min(Math.abs(log) / LARGEST, 1);
    return part > 0.01 ? Math.sign(log) * Math.ceil(part * STEPS - 0.05) : 0;
  }

  window.pairbench.operator.heat = (data) => {
    const form = document.getElementById('heat');
    if (!form) {
      return;
    }
    const table = document.querySelector('table.heat');
    const key = document.getElementById('heat-key');
    const baselines = new Map(
      data.series
        .filter((one) => data.implementations[one.implementation] === 'baseline')
        .map((one) => [`${one.case} ${one.mode}`, one.numbers]),
    );
    const series = new Map(data.series.map((one) => [one.id, one]));
    // Of each cell how it was, and the numbers of its variant and its baseline.
    const cells = [...table.querySelectorAll('td:has(a)')].map((cell) => {
      const link = cell.querySelector('a');
      const one = series.get(link.hash.slice('#series='.length));
      const baseline = one && baselines.get(`${one.case} ${one.mode}`);
      return { cell, link, name: cell.className, title: cell.title, nodes: [...cell.childNodes], own: one ? one.numbers : {}, baseline: baseline || {} };
    });
    const pair = ({ own, baseline }, { column }) => [own[column], baseline[column]];
    const known = (values) => values.every((value) => value !== undefined && value !== null);
    const offered = Object.entries(QUANTITIES).filter(([, one]) => cells.some((cell) => known(pair(cell, one))));
    const select = form.elements.quantity;
    const said = { caption: table.caption.textContent, ends: [...key.querySelectorAll('b')].map((end) => end.textContent) };

    function show() {
      const quantity = QUANTITIES[select.value];
      for (const one of cells) {
        const { cell, link, nodes, name, title } = one;
        const values = quantity && pair(one, quantity);
        if (!quantity) {
          cell.replaceChildren(...nodes);
        } else {
          const text = known(values) ? quantity.text(...values) : '?';
          cell.replaceChildren(element('a', { href: link.getAttribute('href') }, text));
        }
        cell.className = !quantity ? name : `heat-${known(values) ? shade(...values) : 0}`;
        cell.title = !quantity ? title : known(values) ? quantity.title(...values) : 'not measured';
      }
      table.caption.textContent = quantity ? quantity.caption : said.caption;
      key.querySelectorAll('b').forEach((end, at) => {
        end.textContent = said.ends[quantity ? 1 - at : at];
      });
      key.querySelectorAll('[data-of-speedup]').forEach((word) => {
        word.hidden = Boolean(quantity);
      });
    }

    select.append(...offered.map(([value, { words }]) => element('option', { value }, words)));
    form.hidden = !offered.length;
    form.addEventListener('submit', (event) => event.preventDefault());
    form.addEventListener('change', show);
    show();
  };
})();
