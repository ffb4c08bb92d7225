// The state of a page in its address, so that a view can be kept as a bookmark and sent to somebody.
(() => {
  'use strict';

  // What stands behind # is state where it has an equals sign; else it is an anchor.
  function behind() {
    const text = window.location.hash.slice(1);
    return text.includes('=') ? text : null;
  }

  function replaced(address) {
    try {
      window.history.replaceState(null, '', address);
      return true;
    } catch {
      return false;
    }
  }

  // Return an address that keeps its names and values in place 'search' (?a=b) or 'hash' (#a=b).
  // A browser may forbid a page opened from disk to change what is before the #; then they are kept behind it.
  function address(place) {
    function read() {
      const hash = behind();
      return new URLSearchParams(hash !== null ? hash : place === 'search' ? window.location.search : '');
    }

    // Change some names; what is empty is left out.
    function write(changes) {
      const state = read();
      state.delete('');
      for (const [name, value] of Object.entries(changes)) {
        if (value === '' || value === null || value === undefined || value === false) {
          state.delete(name);
        } else {
          state.set(name, value);
        }
      }
      const text = state.toString();
      const { pathname, search, hash } = window.location;
      const anchor = behind() === null ? hash : '';
      if (place === 'search' && replaced(`${pathname}${text ? `?${text}` : ''}${anchor}`)) {
        return;
      }
      // The lone equals sign says that what is before the # no longer counts.
      const told = `#${text || (place === 'search' && search ? '=' : '')}`;
      if (!replaced(place === 'search' || told !== '#' ? told : `${pathname}${search}`)) {
        window.location.replace(told);
      }
    }

    // Call a function whenever the reader goes back or forward to another state.
    function watch(tell) {
      window.addEventListener('popstate', tell);
      window.addEventListener('hashchange', tell);
      window.addEventListener('pageshow', (event) => event.persisted && tell());
    }

    return { read, write, watch };
  }

  window.pairbench.address = address;
})();
