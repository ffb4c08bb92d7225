// The colour scheme that the reader chose. Loaded in the head, so that no page is drawn in the other one first.
(() => {
  'use strict';

  const KEY = 'pairbench-theme';
  const root = document.documentElement;
  const system = window.matchMedia('(prefers-color-scheme: dark)');

  // Storage may be forbidden to a page that was opened from disk.
  function stored() {
    try {
      return window.localStorage.getItem(KEY);
    } catch {
      return null;
    }
  }

  function keep(theme) {
    try {
      window.localStorage.setItem(KEY, theme);
    } catch {
      // Then the choice lasts as long as the page.
    }
  }

  function current() {
    return root.dataset.theme || (system.matches ? 'dark' : 'light');
  }

  // What is drawn by scripts listens to this and draws again.
  function told() {
    document.dispatchEvent(new CustomEvent('pairbench:theme', { detail: current() }));
  }

  const chosen = stored();
  if (chosen === 'light' || chosen === 'dark') {
    root.dataset.theme = chosen;
  }

  document.addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    const label = () => {
      const other = current() === 'dark' ? 'Light' : 'Dark';
      button.textContent = `${other} colours`;
    };
    button.addEventListener('click', () => {
      root.dataset.theme = current() === 'dark' ? 'light' : 'dark';
      keep(root.dataset.theme);
      label();
      told();
    });
    system.addEventListener('change', () => {
      label();
      told();
    });
    label();
    button.hidden = false;
  });

  window.pairbench = { theme: current };
})();
