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
      page: (suite, operator) => ((data.pages || []).find(([one, other]) => one === suite && other === operator) || [])[2],
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

// Links from the numbers of a run to the very series on its operator's page.
(() => {
  'use strict';

  // Return a case's name, as a link where its operator has a page.
  window.pairbench.seriesLink = (run, place) => {
    const { cut, element } = window.pairbench;
    const [suite, name, implementation, mode] = ['suite', 'case', 'implementation', 'mode'].map((key) => run.text(key, place));
    const page = run.page(suite, name.split('[')[0]);
    const root = document.querySelector('.brand').getAttribute('href').replace('index.html', '');
    const chosen = new URLSearchParams({ 'of-case': name, 'of-implementation': implementation, 'of-mode': mode });
    return page ? element('a', { href: `${root}${page}#${chosen}` }, cut(name, 120)) : cut(name, 120);
  };
})();
