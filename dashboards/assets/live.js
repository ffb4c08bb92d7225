// Only where `pairbench dashboard --live` serves the site: what is measured now, and new results as they come.
(() => {
  'use strict';

  const { element, short } = window.pairbench;
  const box = element('section', { class: 'live', 'aria-label': 'What is measured now', hidden: true });
  const fresh = element('p', { class: 'live', role: 'status', hidden: true });
  document.querySelector('main').before(box, fresh);

  function lasting(seconds) {
    return seconds < 90 ? `${Math.max(seconds, 1)} s` : `${Math.round(seconds / 60)} min`;
  }

  function line(run, one) {
    const left = run.left === null ? '' : `, about ${lasting(run.left)} left`;
    const name = `${run.run} on ${one.device}`;
    return element(
      'p',
      {},
      element('b', {}, short(name, 80)),
      ` ${one.done} of ${one.total} steps${left}: ${one.stage} `,
      element('code', {}, short(one.case, 100)),
      element('progress', { max: Math.max(one.total, 1), value: one.done, 'aria-label': `Progress of ${short(name, 80)}` }),
    );
  }

  function show(runs) {
    box.replaceChildren(...runs.flatMap((run) => run.devices.map((one) => line(run, one))));
    box.hidden = !box.children.length;
  }

  // What a reader is typing or has opened is not taken away.
  function busy() {
    const at = document.activeElement;
    const open = document.querySelector('main details[open], main [aria-expanded="true"]');
    return (at && at.matches('input, select, textarea')) || open || String(getSelection());
  }

  function built(files) {
    const page = decodeURIComponent(window.location.pathname.slice(1)) || 'index.html';
    if (!files.includes(page) && !files.includes(page.replace(/html$/, 'js'))) {
      return;
    }
    if (!busy()) {
      window.location.reload();
      return;
    }
    const button = element('button', { type: 'button' }, 'Show them');
    button.addEventListener('click', () => window.location.reload());
    fresh.replaceChildren('There are new results. ', button);
    fresh.hidden = false;
  }

  const source = new EventSource(`/live/events?seen=${document.currentScript.dataset.seen}`);
  source.addEventListener('runs', (event) => show(JSON.parse(event.data)));
  source.addEventListener('built', (event) => built(JSON.parse(event.data)));
  source.addEventListener('error', () => show([]));
})();
