// The page of an operator: which series is chosen, by controls, by the table and by points of charts, and in the address.
(() => {
  'use strict';

  const { charts, element, operator, short } = window.pairbench;
  const address = window.pairbench.address('hash');
  const node = (name) => document.querySelector(`.chart[data-chart="${name}"]`);
  const buttons = (name) => [...document.querySelectorAll(`button[data-of="${name}"]`)];
  const PARTS = ['trend', 'ecdf', 'kernels'];
  const form = document.getElementById('choose');

  function start(data) {
    const parts = Object.fromEntries(PARTS.map((name) => [name, operator[name](data, node(name))]));
    const speedup = node('speedup') && operator.speedup(data, node('speedup'), pick);
    operator.heat(data);
    if (node('scaling')) {
      operator.scaling(data, node('scaling'));
    }
    const roofline = node('roofline') && operator.roofline(data, node('roofline'), pick);
    let chosen = null;

    // What a reader wants to see first: the worst series with an open event, else the variant with the largest speedup, else whatever has a history.
    function first() {
      if (data.worst !== null) {
        return data.series[data.worst];
      }
      const best = [...data.speedup.points]
        .filter((point) => point[3] !== null)
        .sort((one, other) => other[3] - one[3])[0];
      return best ? data.series[best[0]] : data.series.find((one) => one.trend.runs.length) || data.series[0];
    }

    // Addresses made before ids were short have the same digits at their end.
    const named = (id) => data.series.find((one) => one.id === (id || '').split('-').pop());

    // The series that the address asks for: by its id, or as other pages know it, by names.
    function asked() {
      const wanted = address.read();
      const at = data.cases.findIndex(({ key }) => key === wanted.get('of-case'));
      const like = (one) =>
        one.case === at &&
        data.implementations[one.implementation] === wanted.get('of-implementation') &&
        one.mode === wanted.get('of-mode');
      return named(wanted.get('series')) || data.series.find(like);
    }

    function turnTo() {
      const heading = document.getElementById('series');
      heading.scrollIntoView({ block: 'start' });
      heading.focus({ preventScroll: true });
    }

    function options(select, values, wanted) {
      select.replaceChildren(...values.map(([value, text]) => element('option', { value }, text)));
      select.value = wanted;
      select.closest('label').hidden = values.length < 2;
    }

    function controls() {
      const modes = [...new Set(data.series.filter((one) => one.case === chosen.case).map((one) => one.mode))];
      const here = data.series.filter((one) => one.case === chosen.case && one.mode === chosen.mode);
      options(
        form.elements.case,
        data.cases.map(({ label }, at) => [at, label]),
        String(chosen.case),
      );
      options(
        form.elements.mode,
        modes.map((mode) => [mode, mode]),
        chosen.mode,
      );
      options(
        form.elements.implementation,
        here.map((one) => [one.id, short(data.implementations[one.implementation], 60)]),
        chosen.id,
      );
      // A key may break after a comma, and not within its numbers.
      const parts = short(data.cases[chosen.case].key, 160).split(/(?<=,)(?=\S)/);
      document.getElementById('chosen').replaceChildren(...parts.flatMap((part) => [part, element('wbr', {})]));
    }

    function pressed(name) {
      for (const button of buttons(name)) {
        const part = parts[name] || speedup;
        const on = { log: () => (part.logged ? part.logged() : part.state.log), share: () => part.shared() }[
          button.dataset.control
        ];
        button.hidden = false;
        if (on) {
          button.setAttribute('aria-pressed', String(Boolean(on())));
        }
      }
    }

    function told(name) {
      const shown = parts[name].shown();
      node(name).hidden = !shown;
      document.getElementById(`${name}-says`).textContent = parts[name].says();
      const details = document.querySelector(`details[data-table-of="${name}"]`);
      details.hidden = !(parts[name].tabled || parts[name].shown)();
      if (!details.hidden) {
        charts.table(details, () => parts[name].table());
      }
      if (shown) {
        pressed(name);
      } else {
        buttons(name).forEach((button) => {
          button.hidden = true;
        });
      }
    }

    function show(series) {
      chosen = series;
      controls();
      for (const name of PARTS) {
        document.getElementById(`${name}-panel`).hidden = false;
        node(name).hidden = false;
        parts[name].state.log = null;
        parts[name].state.share = null;
        parts[name].show(series);
        told(name);
      }
      if (roofline) {
        roofline.show(series);
      }
      for (const link of document.querySelectorAll('table[data-table="numbers"] a[href^="#series="]')) {
        const here = link.hash === `#series=${series.id}`;
        link.toggleAttribute('aria-current', here);
        link.closest('tr').toggleAttribute('data-chosen', here);
      }
    }

    function write(series) {
      address.write({ series: series.id, 'of-case': '', 'of-implementation': '', 'of-mode': '' });
    }

    function choose(series) {
      if (series && series !== chosen) {
        show(series);
        write(series);
      }
    }

    // By a point of a chart or a row of the table, which may be far from what it shows.
    function pick(place) {
      choose(data.series[place]);
      write(chosen);
      turnTo();
    }

    function toggled(button) {
      const { of, control } = button.dataset;
      const part = parts[of] || speedup;
      if (control === 'reset') {
        part.whole();
      } else if (control === 'log') {
        part.state.log = !(part.logged ? part.logged() : part.state.log);
        part.draw();
      } else {
        part.state.share = !part.shared();
        part.draw();
      }
      pressed(of);
    }

    form.hidden = false;
    form.addEventListener('submit', (event) => event.preventDefault());
    form.addEventListener('change', (event) => {
      const { case: at, mode, implementation } = form.elements;
      const same = (one) => one.case === Number(at.value) && (event.target === at || one.mode === mode.value);
      const like = data.series.filter(same);
      choose(
        event.target === implementation
          ? named(implementation.value)
          : like.find((one) => one.implementation === chosen.implementation && one.mode === chosen.mode) ||
              like.find((one) => one.implementation === chosen.implementation) ||
              like[0],
      );
    });
    document.addEventListener('click', (event) => {
      const link = event.target.closest('a[href^="#series="]');
      const switched = event.target.closest('a[data-keep]');
      if (switched) {
        switched.hash = window.location.hash; // the same series on another device model
      }
      const button = event.target.closest('button[data-control]');
      if (link && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        pick(data.series.findIndex((one) => one.id === link.hash.slice('#series='.length)));
      } else if (button) {
        toggled(button);
      }
    });
    address.watch(() => asked() && choose(asked()));
    show(asked() || first());
    if (asked()) {
      turnTo();
    }
    if (speedup) {
      pressed('speedup');
    }
  }

  window.pairbench.table(document.querySelector('table[data-table="numbers"]'), { place: 'hash' });
  window.pairbench.wanted(document.getElementById('operator').dataset.name).then(start);
})();
