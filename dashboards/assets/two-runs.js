// What two runs say of each series: values in, values out; compare.js shows them.
(() => {
  'use strict';

  const SAME = ['unchanged', 'undecided'];
  const COUNTS = ['launches', 'kernels', 'ops', 'peak'];

  // Return why two series must not be compared, by name, or nothing.
  function apart(before, place, after, other) {
    const told = [];
    for (const [name, what] of [['timer', 'timer'], ['latency', 'latency'], ['definition', 'definition']]) {
      const ends = [before.text(name, place), after.text(name, other)];
      if (ends[0] && ends[1] && ends[0] !== ends[1]) {
        told.push(`${what} ${ends[0]} and ${ends[1]}`);
      }
    }
    return told.length ? `other ${told.join(', other ')}` : '';
  }

  function touch(one, other) {
    const ends = [one.low, one.high, other.low, other.high];
    return ends.some((end) => end === null) ? one.p50 === other.p50 : one.low <= other.high && other.low <= one.high;
  }

  function side(run, place) {
    const made = { place, status: run.text('status', place), reason: run.reason(place) };
    for (const name of ['p50', 'low', 'high', 'speedup', ...COUNTS]) {
      made[name] = run.number(name, place);
    }
    return made;
  }

  function differs(one, other, across) {
    if (one.status !== other.status || COUNTS.some((name) => one[name] !== other[name])) {
      return true;
    }
    return !across && one.p50 !== null && other.p50 !== null && !touch(one, other);
  }

  // Return one entry for each series of either run: {what, why, before, after, ratio, differs, run, place}.
  // Where the runs were judged, `outcomes` has the outcome of each series of the later one, and noise is no difference.
  // Of two device models, a latency differs always: what counts there is whether the counts and the status do.
  function paired(before, after, outcomes, across) {
    const known = new Map();
    for (let place = 0; place < before.length; place += 1) {
      known.set(before.key(place), place);
    }
    const found = [];
    for (let other = 0; other < after.length; other += 1) {
      const key = after.key(other);
      const place = known.get(key);
      known.delete(key);
      const now = side(after, other);
      const outcome = outcomes ? outcomes[other] : '';
      const entry = { run: after, place: other, outcome, across, what: 'new', why: '', before: null, after: now, ratio: null, differs: true };
      if (place !== undefined) {
        const then = side(before, place);
        const why = apart(before, place, after, other);
        const ratio = !why && then.p50 && now.p50 ? now.p50 / then.p50 : null;
        const sources = [before.text('source', place), after.text('source', other)];
        Object.assign(entry, {
          what: why ? 'incomparable' : 'compared',
          why,
          before: then,
          ratio,
          edited: !across && Boolean(sources[0] && sources[1] && sources[0] !== sources[1]),
          differs: Boolean(why) || (outcome ? !SAME.includes(outcome) : differs(then, now, across)),
        });
      }
      found.push(entry);
    }
    for (const place of known.values()) {
      found.push({ run: before, place, what: 'missing', why: '', before: side(before, place), after: null, ratio: null, differs: true });
    }
    return found;
  }

  // Return the ratios of the series that are slower and faster, their intervals apart, and of all that are compared: [{name, ratios}].
  function moves(entries) {
    const known = entries.filter((entry) => entry.ratio > 0);
    const apart = known.filter((entry) => !touch(entry.before, entry.after));
    return [
      ['slower', apart.filter((entry) => entry.ratio > 1)],
      ['faster', apart.filter((entry) => entry.ratio < 1)],
      ['compared', known],
    ]
      .map(([name, several]) => ({ name, ratios: several.map((entry) => entry.ratio) }))
      .filter((group) => group.ratios.length);
  }

  // Return the fields in which two environments differ: [name, before, after].
  function changed(before, after) {
    return Object.keys({ ...before, ...after })
      .filter((name) => before[name] !== after[name])
      .map((name) => [name, before[name], after[name]]);
  }

  window.pairbench.twoRuns = { paired, moves, changed };
})();
