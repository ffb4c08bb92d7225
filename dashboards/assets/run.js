// The table of a run's series, made from the script that the page of two runs loads too.
(() => {
  'use strict';

  const { columns, cut, element, load, numberCell, seriesLink, state, units } = window.pairbench;
  const SHAPES = { measured: 'unchanged', skipped: 'skipped' };

  // Return the cells of what stands beside a result on a GPU; the table of a run on a CPU has none of them.
  function beside(run, place) {
    if (!run.has('call')) {
      return [];
    }
    const bound = run.text('bound', place) === 'host' ? 'host-bound' : '';
    return ['call', 'host'].map((name) => {
      const value = run.number(name, place);
      return numberCell(value, units.duration(value), name === 'host' ? bound : '');
    });
  }

  function row(run, place) {
    const number = (name) => run.number(name, place);
    const text = (name) => run.text(name, place);
    const status = text('status');
    const item = element(
      'tr',
      { 'data-item': true, 'data-status': status },
      element('th', { scope: 'row', class: 'name case' }, seriesLink(run, place), element('span', { class: 'sub' }, cut(text('suite'), 40))),
      element('td', {}, cut(text('implementation'), 30)),
      element('td', {}, cut(text('mode'), 20)),
      element('td', { title: run.reason(place) || null }, state(status, SHAPES[status] || 'failed')),
      numberCell(number('p50'), units.duration(number('p50')), units.between(number('low'), number('high'), units.duration)),
      numberCell(number('p95'), units.duration(number('p95'))),
      numberCell(
        number('speedup'),
        units.ratio(number('speedup')),
        units.between(number('speedup_low'), number('speedup_high'), units.ratio),
      ),
      ...beside(run, place),
      numberCell(number('launches'), units.count(number('launches'))),
      numberCell(number('ops'), units.count(number('ops'))),
      numberCell(number('peak'), units.size(number('peak'))),
      numberCell(number('margin'), units.percent(number('margin'))),
      numberCell(number('rounds'), units.count(number('rounds'))),
      element('td', {}, cut(text('stop').replace('_', ' '), 20)),
      element('td', {}, cut(text('throttle'), 30)),
    );
    item.dataset.text = ['suite', 'case', 'implementation', 'mode', 'status'].map((name) => text(name).slice(0, 300)).join(' ');
    return item;
  }

  const place = document.getElementById('series');
  const note = document.getElementById('series-note');
  note.textContent = 'Loading the numbers.';
  load(place.dataset.run, place.dataset.source)
    .then((data) => {
      const run = columns(data);
      const table = place.querySelector('table');
      table.tBodies[0].append(...Array.from({ length: run.length }, (_, number) => row(run, number)));
      window.pairbench.table(table);
      place.hidden = !run.length;
      note.textContent = run.length ? '' : 'No series was recorded.';
    })
    .catch((error) => {
      note.textContent = `The numbers are missing: ${error.message}. Build the site again with pairbench dashboard.`;
    });
})();
