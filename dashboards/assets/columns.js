// The columns of a run's data script, as series: see `run_payload`.
(() => {
  'use strict';

  // Return a view of a run: text(name, place), number(name, place), has(name), key(place) and the number of series.
  window.pairbench.columns = (data) => {
    const text = (name, place) => {
      const found = data.texts[name] ? data.texts[name][place] : -1;
      return found < 0 ? '' : data.names[found];
    };
    const number = (name, place) => (data.numbers[name] ? data.numbers[name][place] : null);
    return {
      length: data.texts.case.length,
      text,
      number,
      has: (name) => Boolean(data.numbers[name]),
      reason: (place) => data.reasons[place] || '',
      // What stays the same from run to run.
      key: (place) => JSON.stringify(['suite', 'case', 'implementation', 'mode'].map((name) => text(name, place))),
    };
  };

  // Return a table cell with a number and, below it, what is to be known beside it.
  window.pairbench.numberCell = (value, told, below) => {
    const { element } = window.pairbench;
    const sub = below ? element('span', { class: 'sub' }, below) : null;
    return element('td', { class: 'n', 'data-value': value === null || value === undefined ? '' : value }, told, sub);
  };
})();
