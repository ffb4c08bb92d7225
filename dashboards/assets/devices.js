// The columns of the overview's device models: all of the first, those of one that was chosen, or of a pair side by side.
(() => {
  'use strict';

  const SHOWN = 3;
  const form = document.querySelector('form[data-filters="overview"]');
  const heads = [...document.querySelectorAll('th[data-column]')];
  const pair = document.getElementById('pair');
  const { device, beside } = form.elements;

  function show() {
    const wanted = [device.value, beside.value].filter(Boolean);
    const both = device.value && beside.value && device.value !== beside.value;
    for (const head of heads) {
      const at = head.dataset.column;
      const hidden = wanted.length ? !wanted.includes(head.dataset.of) : Number(at) >= SHOWN;
      for (const cell of document.querySelectorAll(`[data-column="${at}"]`)) {
        cell.hidden = hidden;
      }
    }
    pair.hidden = !both;
    pair.querySelector('a').search = new URLSearchParams({ device: device.value, beside: beside.value });
  }

  form.addEventListener('input', show);
  form.addEventListener('reset', () => setTimeout(show));
  window.pairbench.address('search').watch(() => setTimeout(show));
  show();
})();
