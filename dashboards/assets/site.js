// What all pages share: data that scripts bring, elements made from text, and buttons that copy.
(() => {
  'use strict';

  const pairbench = window.pairbench;
  const known = new Map();
  const waiting = new Map();
  // What has come and is being unpacked.
  const brought = new Set();

  // Called by the data scripts: fetch() does not work from disk, a script does.
  pairbench.data = (name, value) => {
    known.set(name, value);
    for (const tell of waiting.get(name) || []) {
      tell(value);
    }
    waiting.delete(name);
  };

  // Called by scripts whose text is packed: deflated, in base64.
  async function unpacked(letters) {
    const text = atob(letters);
    const bytes = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at += 1) {
      bytes[at] = text.charCodeAt(at);
    }
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate')));
  }
  pairbench.packed = async (name, letters) => {
    brought.add(name);
    const response = await unpacked(letters);
    pairbench.data(name, name === 'plotly' ? await response.blob() : await response.json());
  };

  // Return a promise of what a data script brings under a name.
  pairbench.wanted = (name) =>
    new Promise((resolve) => {
      if (known.has(name)) {
        resolve(known.get(name));
      } else {
        waiting.set(name, [...(waiting.get(name) || []), resolve]);
      }
    });

  // Return a promise of the data that the script at `source` brings under `name`; the script is loaded once.
  pairbench.load = (name, source) => {
    if (known.has(name)) {
      return Promise.resolve(known.get(name));
    }
    return new Promise((resolve, reject) => {
      const script = document.createElement('script');
      script.src = source;
      script.onerror = () => reject(new Error(`${source} could not be loaded`));
      script.onload = () => {
        if (known.has(name) || brought.has(name)) {
          pairbench.wanted(name).then(resolve);
        } else {
          reject(new Error(`${source} holds no ${name}`));
        }
      };
      document.head.append(script);
    });
  };

  // Return an element. Children are elements or text: names come from anywhere, so nothing is ever parsed as markup.
  pairbench.element = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === true) {
        made.setAttribute(name, '');
      } else if (value !== null && value !== undefined && value !== false) {
        made.setAttribute(name, value);
      }
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };

  // Return text cut in the middle: both ends tell things apart.
  pairbench.short = (text, width) => {
    // The pattern is what Python calls not printable: control characters, and marks that turn the direction of text.
    const line = String(text).replace(/[\p{C}\p{Z}]+/gu, ' ').trim();
    const tail = Math.floor(width / 3);
    const letters = Array.from(line);
    return letters.length <= width
      ? line
      : `${letters.slice(0, width - tail - 1).join('')}…${letters.slice(-tail).join('')}`;
  };

  // Return an element with a name, cut, and more of it where one points at it.
  pairbench.cut = (text, width) => {
    const told = pairbench.short(text, width);
    return pairbench.element('bdi', { title: told === text ? null : pairbench.short(text, 500) }, told);
  };

  // Return an element with a state as its word behind its shape, like the filter `state` of the templates.
  pairbench.state = (word, shape) =>
    pairbench.element('span', { class: `state state-${shape || word}` }, pairbench.short(word, 30));

  // Return a value of the style sheet, such as '--accent', as it is in the present colour scheme.
  pairbench.colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  document.addEventListener('click', async (event) => {
    const button = event.target.closest('button[data-copy]');
    if (!button) {
      return;
    }
    const source = document.getElementById(button.dataset.copy);
    let done = true;
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      // From disk the clipboard may be forbidden; then the text is selected, and the keyboard copies it.
      getSelection().selectAllChildren(source);
      done = document.execCommand('copy');
    }
    button.textContent = done ? 'Copied' : 'Selected';
    setTimeout(() => {
      button.textContent = 'Copy';
    }, 1500);
  });

  // A copy button does nothing without scripts, so it is hidden until here.
  for (const button of document.querySelectorAll('button[data-copy]')) {
    button.hidden = false;
  }
})();
