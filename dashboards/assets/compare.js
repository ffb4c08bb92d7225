// The page that puts two runs side by side: which two is in its address, their numbers come from the scripts of their pages.
(() => {
  'use strict';

  const { address, columns, cut, element, load, numberCell, seriesLink, short, state, twoRuns, units } = window.pairbench;
  const WHAT = { compared: 'unchanged', incomparable: 'undecided', new: 'new', missing: 'skipped' };
  const VERDICTS = ['failed', 'regression', 'missing', 'improvement', 'undecided', 'incomparable', 'new', 'unchanged'];
  const STATUS = { measured: 'unchanged', skipped: 'skipped' };

  const form = document.getElementById('choose');
  const result = document.getElementById('result');
  const note = document.getElementById('compare-note');
  const kept = address('search');
  const controls = form.elements;
  const options = { a: [...controls.a.options], b: [...controls.b.options] };
  let table = null;
  let asked = 0;

  // A shell takes it as one word, whatever is in it.
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

  // Offer the runs of the chosen device alone, and keep what is chosen where it is among them.
  function offer(chosen) {
    const devices = { a: controls.device.value, b: controls.beside.value || controls.device.value };
    const apart = devices.a !== devices.b;
    for (const [name, otherwise] of [['a', apart ? 0 : 1], ['b', 0]]) {
      const fitting = options[name].filter((option) => option.dataset.device === devices[name]);
      controls[name].replaceChildren(...fitting);
      const wanted = fitting.find((option) => option.value === chosen[name]);
      controls[name].selectedIndex = wanted ? fitting.indexOf(wanted) : Math.min(otherwise, fitting.length - 1);
    }
    // What nobody chose is the earlier run that measured the same.
    if (!chosen.a && !apart) {
      const after = controls.b.options[controls.b.selectedIndex];
      const before = [...controls.a.options].find((option) => after && option.value === after.dataset.with);
      controls.a.value = before ? before.value : controls.a.value;
    }
    // Only one of them was asked for, and it is what the other would be.
    if (controls.a.value === controls.b.value) {
      const [given, other] = chosen.a ? ['a', 'b'] : ['b', 'a'];
      const at = controls[given].selectedIndex;
      controls[other].selectedIndex = at + 1 < controls[other].options.length ? at + 1 : Math.max(at - 1, 0);
    }
  }

  function arrow(before, after, say) {
    const ends = [say(before), say(after)];
    return ends[0] === ends[1] ? ends[0] : `${ends[0] || '?'} → ${ends[1] || '?'}`;
  }

  function counted(entry, name, say) {
    const { before, after } = entry;
    if (!before || !after) {
      const value = (before || after)[name];
      return numberCell(value, say(value));
    }
    return numberCell(after[name], arrow(before[name], after[name], say));
  }

  function latency(side) {
    return side
      ? numberCell(side.p50, units.duration(side.p50), units.between(side.low, side.high, units.duration))
      : numberCell(null, '');
  }

  function statuses({ before, after }) {
    const told = [before, after].filter(Boolean);
    const words = [...new Set(told.map((side) => side.status))];
    const cell = element('td', { title: told.map((side) => side.reason).filter(Boolean).join('; ').slice(0, 500) || null });
    words.forEach((word, number) => cell.append(number ? ' → ' : '', state(word, STATUS[word] || 'failed')));
    return cell;
  }

  function row(entry) {
    const text = (name) => entry.run.text(name, entry.place);
    const below = entry.why || (entry.edited ? 'its source changed' : '');
    const item = element(
      'tr',
      { 'data-item': true, 'data-what': entry.what, 'data-differs': entry.differs ? '1' : '0' },
      element('th', { scope: 'row', class: 'name case' }, seriesLink(entry.run, entry.place), element('span', { class: 'sub' }, cut(text('suite'), 40))),
      element('td', {}, cut(text('implementation'), 30)),
      element('td', {}, cut(text('mode'), 20)),
      element('td', {}, state(entry.what, WHAT[entry.what]), below ? element('span', { class: 'sub' }, cut(below, 60)) : null),
      element('td', { 'data-value': VERDICTS.indexOf(entry.outcome) < 0 ? '' : VERDICTS.indexOf(entry.outcome) }, entry.outcome ? state(entry.outcome) : ''),
      latency(entry.before),
      latency(entry.after),
      numberCell(entry.ratio, entry.across ? units.ratio(entry.ratio) : units.change(entry.ratio)),
      counted(entry, 'speedup', units.ratio),
      counted(entry, 'launches', units.count),
      counted(entry, 'kernels', units.count),
      counted(entry, 'ops', units.count),
      counted(entry, 'peak', units.size),
      statuses(entry),
    );
    item.dataset.text = ['suite', 'case', 'implementation', 'mode'].map((name) => text(name).slice(0, 300)).join(' ');
    return item;
  }

  // What was judged stands first, the worst and then the largest of it.
  function largest(one, other) {
    const rank = (entry) => (entry.outcome ? VERDICTS.indexOf(entry.outcome) : VERDICTS.length);
    const size = (entry) => (entry.ratio ? Math.abs(Math.log(entry.ratio)) : 0);
    return rank(one) - rank(other) || Number(other.differs) - Number(one.differs) || size(other) - size(one);
  }

  // Two medians of one series: no verdict, so how many are larger, not how many got worse.
  function moved({ name, ratios }) {
    const say = (ratio) => units.change(ratio);
    const mean = say(Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length));
    const ends = `${say(Math.min(...ratios))} to ${say(Math.max(...ratios))}`;
    const many = `${units.count(ratios.length)} ${name}`;
    return ratios.length > 1 ? `${many}: geometric mean of P50 ${mean}, ${ends}` : `${many}: P50 ${mean}`;
  }

  function show([before, after]) {
    const fields = twoRuns.changed(before.environment, after.environment);
    document.getElementById('environment').replaceChildren(
      ...fields.map(([name, one, other]) =>
        element('tr', {}, element('th', { scope: 'row' }, cut(name, 60)), element('td', { 'data-label': 'Before' }, cut(one || 'none', 80)), element('td', { 'data-label': 'After' }, cut(other || 'none', 80))),
      ),
    );
    document.getElementById('differs').hidden = !fields.length;
    const names = fields.map(([name]) => short(name, 40));
    const more = names.length > 4 ? ` and ${names.length - 4} more` : '';
    document.getElementById('fields').textContent = `The environment differs in ${names.slice(0, 4).join(', ')}${more}`;
    document.getElementById('same').hidden = fields.length > 0;
    const across = before.device !== after.device;
    for (const part of result.querySelectorAll('[data-side]')) {
      const words = { a: `P50 on ${before.device}`, b: `P50 on ${after.device}`, '': 'Ratio of P50' }[part.dataset.side];
      part.textContent = across ? short(words, 50) : part.dataset.words;
    }
    document.getElementById('judging').hidden = before.run === after.run;
    const judge = document.getElementById('judge');
    judge.textContent = ['pairbench compare', quoted(before.run), quoted(after.run), judge.dataset.options].join(' ').trim();

    const judged = !across && after.verdicts && after.verdicts.run === before.run ? after.verdicts.outcomes : null;
    for (const part of result.querySelectorAll('[data-judged]')) {
      part.hidden = part.dataset.judged !== (across ? 'across' : judged ? 'yes' : 'no');
    }
    const entries = twoRuns.paired(columns(before), columns(after), judged, across).sort(largest);
    const number = (fits) => units.count(entries.filter(fits).length);
    document.getElementById('tally').textContent = ['compared', 'incomparable', 'new', 'missing']
      .map((what) => `${number((entry) => entry.what === what)} ${what}`)
      .concat(`${number((entry) => entry.differs)} differ`)
      .join(', ');
    const moves = judged ? after.verdicts.moves : twoRuns.moves(entries).map(moved);
    document.getElementById('moves').replaceChildren(...moves.map((text) => element('li', {}, short(text, 400))));
    const place = result.querySelector('table[data-table]');
    place.tBodies[0].replaceChildren(...entries.map(row));
    if (table) {
      table.refresh();
    } else {
      table = window.pairbench.table(place);
    }
    result.hidden = false;
    note.textContent = '';
  }

  // Two choices may be under way at once; the newest counts.
  function update() {
    asked += 1;
    const turn = asked;
    const chosen = [controls.a, controls.b].map((control) => control.options[control.selectedIndex]);
    if (chosen[0].value === chosen[1].value) {
      result.hidden = true;
      note.textContent = 'These are one and the same run: choose another one.';
      return;
    }
    note.textContent = 'Loading both runs.';
    Promise.all(chosen.map((option) => load(option.dataset.name, option.dataset.source)))
      .then((runs) => turn === asked && show(runs))
      .catch((error) => {
        result.hidden = true;
        note.textContent = `A run is missing: ${error.message}. Build the site again with pairbench dashboard.`;
      });
  }

  function changed(event) {
    if (event.target === controls.device || event.target === controls.beside) {
      offer(event.target === controls.device ? {} : { a: controls.a.value });
    }
    kept.write({ device: controls.device.value, beside: controls.beside.value, a: controls.a.value, b: controls.b.value });
    update();
  }

  function restore() {
    const chosen = kept.read();
    // A link from a run's page names only the run.
    const named = [...options.b, ...options.a].find((option) => [chosen.get('b'), chosen.get('a')].includes(option.value));
    controls.device.value = chosen.get('device') || (named ? named.dataset.device : '');
    if (controls.device.selectedIndex < 0) {
      controls.device.selectedIndex = 0;
    }
    const at = (name) => (options[name].find((option) => option.value === chosen.get(name)) || { dataset: {} }).dataset.device;
    const [one, other] = [at('a'), at('b')];
    if (one && other) {
      controls.device.value = one;
    }
    controls.beside.value = chosen.get('beside') || (one && other && one !== other ? other : '');
    if (controls.beside.selectedIndex < 0 || controls.beside.value === controls.device.value) {
      controls.beside.value = '';
    }
    offer({ a: chosen.get('a'), b: chosen.get('b') });
    update();
  }

  form.addEventListener('change', changed);
  form.addEventListener('submit', (event) => event.preventDefault());
  document.getElementById('swap').addEventListener('click', (event) => {
    const [a, b] = [controls.b.value, controls.a.value];
    if (controls.beside.value) {
      [controls.device.value, controls.beside.value] = [controls.beside.value, controls.device.value];
    }
    offer({ a, b });
    changed(event);
  });
  kept.watch(restore);
  form.hidden = false;
  restore();
})();
