// The first lines of the overview: whether a run is overdue by now, and the window of events that count and are named, kept in the address.
(() => {
  'use strict';

  const night = document.querySelector('[data-due]');
  if (night) {
    night.querySelector('[data-overdue]').hidden = Date.now() < Date.parse(night.dataset.due);
  }

  const SHOWN = 8;
  const form = document.querySelector('form[data-window-of]');
  if (!form) {
    return;
  }
  const address = window.pairbench.address('search');
  const select = form.elements.window;

  function show() {
    for (const number of document.querySelectorAll('b[data-counts]')) {
      const count = JSON.parse(number.dataset.counts)[select.value];
      number.textContent = count.toLocaleString('en-US');
      const tile = number.closest('li');
      tile.classList.toggle('zero', !count);
      const link = number.closest('a');
      const [page, query] = link.getAttribute('href').split('?');
      const wanted = new URLSearchParams(query);
      wanted.delete('window');
      if (select.value) {
        wanted.set('window', select.value);
      }
      link.setAttribute('href', `${page}?${wanted}`);
    }
    let shown = 0;
    for (const item of document.querySelectorAll('li[data-windows]')) {
      const fits = !select.value || item.dataset.windows.split('\n').includes(select.value);
      shown += fits;
      item.hidden = !fits || shown > SHOWN;
    }
  }

  function restore() {
    const wanted = address.read().get('window') || '';
    select.value = [...select.options].some((option) => option.value === wanted) ? wanted : '';
    show();
  }

  form.hidden = false;
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('change', () => {
    address.write({ window: select.value });
    show();
  });
  address.watch(restore);
  restore();
})();
