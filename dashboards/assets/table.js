// Tables that sort and filter what the page already holds, with their state in the page's address.
//
//   <form data-filters="cases">       controls: a search field `q`, selects and checkboxes that bear names
//   <output data-count="cases">       how many rows there are to see
//   <table data-table="cases" data-noun="rows" data-prefix="">
//     <th data-sort="speedup" data-numeric data-first="down">, or data-placed to sort as the page has them
//     <tr data-item data-device="..." data-text="what q looks through">, or <tbody data-item> for rows that stay together
//       <td data-value="2.481">       what to sort by; where it is not given the cell's text, of numbers with their units the first; empty ones come last
(() => {
  'use strict';

  const { element, units } = window.pairbench;

  function textOf(item) {
    item.searched = item.searched || (item.dataset.text || item.textContent).toLowerCase();
    return item.searched;
  }

  function valueOf(item, column, numeric) {
    const row = item.matches('tr') ? item : item.querySelector('tr');
    const cell = row.cells[column];
    const shown = (numeric && cell.firstChild) || cell;
    const text = cell.dataset.value !== undefined ? cell.dataset.value : shown.textContent.trim();
    const value = numeric ? units.value(text) : text;
    return value === '' || Number.isNaN(value) ? null : value;
  }

  function compared(one, other, sign) {
    if (one === null || other === null) {
      return (one === null) - (other === null);
    }
    return sign * (typeof one === 'number' ? one - other : one.localeCompare(other, 'en', { numeric: true }));
  }

  // An item has one value of a name in data-name, or several in data-names, a line each.
  function has(item, name, value) {
    return item.dataset[name] === value || (item.dataset[`${name}s`] || '').split('\n').includes(value);
  }

  // On a phone a row is a card: each cell says by itself what it is, and what is empty is left out.
  const narrow = window.matchMedia('screen and (max-width: 700px)');
  function labelled(table) {
    if (!narrow.matches || !table.tHead) {
      return;
    }
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells].map((head) => head.textContent.trim());
    for (const row of [...table.tBodies].flatMap((body) => [...body.rows])) {
      for (const cell of row.cells) {
        if (cell.tagName === 'TD' && cell.colSpan === 1 && row.cells.length > 1) {
          cell.dataset.label = heads[cell.cellIndex] || '';
          cell.toggleAttribute('data-blank', !cell.textContent.trim() && !cell.querySelector('svg'));
        }
      }
    }
  }
  window.pairbench.labelled = labelled;
  function labelAll() {
    document.querySelectorAll('table.cards').forEach(labelled);
  }
  // How much of a wide table lies beyond the right end of its box.
  for (const box of document.querySelectorAll('.scroll:has(> table > thead)')) {
    const note = element('p', { class: 'note beyond', hidden: true });
    const heads = box.querySelector('table').tHead.rows;
    const tell = () => {
      const { right } = box.getBoundingClientRect();
      const left = [...heads[heads.length - 1].cells].filter((cell) => cell.getBoundingClientRect().right > right + 1).length;
      note.textContent = `${left} more column${left === 1 ? '' : 's'} to the right: the table scrolls sideways`;
      note.hidden = !left;
    };
    box.before(note);
    box.addEventListener('scroll', tell, { passive: true });
    const watch = new ResizeObserver(tell);
    watch.observe(box);
    watch.observe(box.querySelector('table'));
  }

  narrow.addEventListener('change', labelAll);
  labelAll();

  class Table {
    constructor(table, options) {
      const name = table.dataset.table;
      this.table = table;
      this.prefix = table.dataset.prefix || '';
      this.noun = table.dataset.noun || 'rows';
      this.form = document.querySelector(`form[data-filters~="${CSS.escape(name)}"]`);
      this.output = document.querySelector(`[data-count="${CSS.escape(name)}"]`);
      this.address = window.pairbench.address((options && options.place) || 'search');
      this.sort = '';
      this.heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells].filter((head) => head.dataset.sort);
      this.heads.forEach((head) => this.makeSortable(head));
      if (this.form) {
        this.form.hidden = false;
        this.form.addEventListener('input', () => this.changed());
        this.form.addEventListener('submit', (event) => event.preventDefault());
        // The controls are empty only after this event.
        this.form.addEventListener('reset', () => setTimeout(() => this.changed()));
      }
      this.empty = this.makeEmpty();
      this.address.watch(() => this.restore());
      this.refresh();
    }

    makeSortable(head) {
      const button = element('button', { type: 'button', class: 'sort' }, ...head.childNodes);
      button.addEventListener('click', () => this.turn(head));
      head.append(button);
    }

    makeEmpty() {
      const width = this.table.tHead.rows[this.table.tHead.rows.length - 1].cells.length;
      const cell = element('td', { colspan: width, class: 'note' }, `No ${this.noun} like that. `);
      if (this.form) {
        const button = element('button', { type: 'button' }, 'Show all');
        button.addEventListener('click', () => this.form.reset());
        cell.append(button);
      }
      const body = element('tbody', { hidden: true }, element('tr', {}, cell));
      this.table.append(body);
      return body;
    }

    // Take up rows that were added, removed or changed since.
    refresh() {
      this.items = [...this.table.querySelectorAll('[data-item]')];
      this.groups = [...this.table.querySelectorAll('[data-group]')];
      this.order = [...this.table.querySelectorAll('[data-item], [data-group]')];
      if (this.table.matches('.cards')) {
        labelled(this.table);
      }
      this.restore();
    }

    controls() {
      return this.form ? [...this.form.elements].filter((control) => control.name) : [];
    }

    restore() {
      const state = this.address.read();
      for (const control of this.controls()) {
        const value = state.get(this.prefix + control.name) || '';
        if (control.type === 'checkbox') {
          control.checked = value === control.value;
        } else {
          control.value = value;
          // An address may name what is not there; then there is nothing to choose by.
          if (control.value !== value) {
            control.value = '';
          }
        }
      }
      this.sort = state.get(`${this.prefix}sort`) || '';
      this.arrange();
      this.filter();
    }

    wanted() {
      const found = {};
      for (const control of this.controls()) {
        found[control.name] = control.type === 'checkbox' ? (control.checked ? control.value : '') : control.value.trim();
      }
      return found;
    }

    changed() {
      this.filter();
      this.write();
    }

    write() {
      // Another table may share the address, and so the name.
      const changes = { ...(this.heads.length ? { sort: this.sort } : {}), ...this.wanted() };
      this.address.write(Object.fromEntries(Object.entries(changes).map(([name, value]) => [this.prefix + name, value])));
    }

    filter() {
      const { q = '', ...exact } = this.wanted();
      const words = q.toLowerCase().split(/\s+/).filter(Boolean);
      const pairs = Object.entries(exact).filter(([, value]) => value !== '');
      // A control may ask for a second value of another's name: an item has both, and its parts have either.
      const others = this.controls().filter((control) => control.dataset.or && control.value);
      let shown = 0;
      for (const item of this.items) {
        const fits =
          pairs.every(([name, value]) => has(item, name, value)) &&
          (!words.length || words.every((word) => textOf(item).includes(word)));
        item.hidden = !fits;
        shown += fits;
        this.unfold(item, pairs, others);
      }
      for (const group of this.groups) {
        group.hidden = this.sorted || !this.items.some((item) => !item.hidden && item.dataset.family === group.dataset.group);
      }
      this.empty.hidden = shown > 0 || !this.items.length;
      if (this.output) {
        const whole = this.items.length;
        const noun = whole === 1 && this.noun !== 'series' ? this.noun.replace(/s$/, '') : this.noun;
        const all = `${whole.toLocaleString('en-US')} ${noun}`;
        this.output.textContent = shown === whole ? all : `${shown.toLocaleString('en-US')} of ${all}`;
      }
    }

    // Of an item's parts only those that were asked for are there to see, and then they are seen.
    unfold(item, pairs, others) {
      const parts = item.querySelectorAll('[data-part]');
      const own = pairs.filter(([name]) => parts.length && parts[0].dataset[name] !== undefined);
      for (const part of parts) {
        const either = (name) => others.some((other) => other.dataset.or === name && other.value === part.dataset[name]);
        part.hidden = !own.every(([name, value]) => part.dataset[name] === value || either(name));
      }
      const button = item.querySelector('[data-unfold]');
      if (button && own.length) {
        turned(button, true);
      }
    }

    turn(head) {
      const name = head.dataset.sort;
      const first = head.dataset.first === 'down' ? `-${name}` : name;
      const second = first === name ? `-${name}` : name;
      this.sort = this.sort === first ? second : this.sort === second ? '' : first;
      this.arrange();
      this.filter();
      this.write();
    }

    arrange() {
      const name = this.sort.replace(/^-/, '');
      const sign = this.sort.startsWith('-') ? -1 : 1;
      let head = null;
      for (const one of this.heads) {
        if (one.dataset.sort === name) {
          head = one;
          one.setAttribute('aria-sort', sign < 0 ? 'descending' : 'ascending');
        } else {
          one.removeAttribute('aria-sort');
        }
      }
      let ordered = this.order;
      if (head) {
        const values = new Map(
          this.items.map((item, place) => [
            item,
            'placed' in head.dataset ? place : valueOf(item, head.cellIndex, 'numeric' in head.dataset),
          ]),
        );
        ordered = [...this.items].sort((one, other) => compared(values.get(one), values.get(other), sign));
      } else if (!this.sorted) {
        return;
      }
      this.sorted = head !== null;
      for (const parent of new Set(this.items.map((item) => item.parentNode))) {
        parent.append(...ordered.filter((item) => item.parentNode === parent));
      }
      this.table.append(this.empty);
    }
  }

  // A button that shows and hides what belongs to its row.
  function turned(button, open) {
    button.setAttribute('aria-expanded', String(open));
    document.getElementById(button.dataset.unfold).hidden = !open;
  }

  for (const button of document.querySelectorAll('[data-unfold]')) {
    button.hidden = false;
    button.addEventListener('click', () => turned(button, button.getAttribute('aria-expanded') !== 'true'));
  }

  // Make a table sortable and filterable. Options: place, 'search' or 'hash'. Call refresh() when its rows change.
  window.pairbench.table = (table, options) => new Table(table, options);

  // Those marked so wait for a script that fills them.
  for (const table of document.querySelectorAll('table[data-table]:not([data-later])')) {
    window.pairbench.table(table);
  }
})();
