// What an address points at is unfolded: an event may lie in what is folded away.
(() => {
  'use strict';

  function unfold() {
    const id = decodeURIComponent(window.location.hash.slice(1));
    const target = id && !id.includes('=') ? document.getElementById(id) : null;
    if (!target) {
      return;
    }
    for (let outer = target.closest('details'); outer; outer = outer.parentElement.closest('details')) {
      outer.open = true;
    }
    const inner = target.querySelector('details');
    if (inner) {
      inner.open = true;
    }
    target.scrollIntoView();
  }

  window.addEventListener('hashchange', unfold);
  unfold();
})();
