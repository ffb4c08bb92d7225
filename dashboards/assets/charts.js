// What all charts share: the page's colours, room for what the window has, names as text, and a table of the same numbers.
(() => {
  'use strict';

  const { element } = window.pairbench;
  const COLOURS = 7;
  const SYMBOLS = ['circle', 'square', 'diamond', 'triangle-up', 'triangle-down', 'cross', 'x', 'star'];
  const DASHES = ['solid', 'dash', 'dot', 'dashdot', 'longdash'];
  const NARROW = 560;
  // Pixels of a sheet of A4, or of a letter, between its margins and those of a panel.
  const PAPER = 620;
  const CONFIG = {
    // One button, shown while the pointer is on the chart: it saves the chart as a picture.
    displayModeBar: 'hover',
    displaylogo: false,
    modeBarButtons: [['toImage']],
    doubleClick: 'reset',
    responsive: false,
    showTips: false,
  };

  // Return a name as text of a chart. Plotly takes its texts for markup of a kind, so what begins some is escaped.
  function text(value, width = 60) {
    return window.pairbench.short(value, width).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
  }

  // Return lines as one hover text. Each is a finished text already.
  const lines = (...parts) => parts.filter(Boolean).join('<br>');

  // The first implementation is the baseline; shapes and dashes come round after another number of names than colours do.
  const colour = (place) => window.pairbench.colour(`--series-${place ? 1 + ((place - 1) % COLOURS) : 0}`);
  const symbol = (place) => (place ? SYMBOLS[(place - 1) % SYMBOLS.length] : 'circle-open');
  const dash = (place) => (place ? DASHES[(place - 1) % DASHES.length] : 'solid');

  // Return the parts of a layout that all charts have, in the present colours.
  function base() {
    const of = window.pairbench.colour;
    const axis = {
      automargin: true,
      gridcolor: of('--line'),
      linecolor: of('--strong-line'),
      tickcolor: of('--strong-line'),
      zeroline: false,
      ticks: 'outside',
      ticklen: 4,
      title: { standoff: 8 },
    };
    return {
      template: {
        layout: {
          xaxis: axis,
          yaxis: axis,
          font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: of('--text') },
          // A picture that was saved has its ground: letters of a dark page are light.
          paper_bgcolor: of('--ground'),
          plot_bgcolor: 'rgba(0,0,0,0)',
          hoverlabel: {
            align: 'left',
            bgcolor: of('--panel'),
            bordercolor: of('--strong-line'),
            font: { color: of('--text'), size: 12 },
            namelength: -1,
          },
          modebar: { bgcolor: 'rgba(0,0,0,0)', color: of('--muted'), activecolor: of('--text') },
          legend: { orientation: 'h', x: 0, xanchor: 'left', font: { size: 12 }, itemwidth: 30 },
        },
      },
      hovermode: 'closest',
      hoverdistance: 30,
      // A finger that moves over a chart scrolls the page.
      dragmode: window.matchMedia('(pointer: coarse)').matches ? false : 'zoom',
      margin: { l: 8, r: 12, t: 8, b: 8 },
    };
  }

  // Plotly is large, so it is loaded when the first chart comes near the window; a promise of it.
  let loading = null;
  function plotly() {
    loading =
      loading ||
      window.pairbench.load('plotly', document.querySelector('[data-plotly]').dataset.plotly).then(
        (code) =>
          new Promise((resolve, reject) => {
            const script = element('script', { src: URL.createObjectURL(code), 'data-drawing': true });
            script.onload = resolve;
            script.onerror = () => reject(new Error('the charts\' script could not be run'));
            document.head.append(script);
          }),
      );
    return loading;
  }

  const NEAR = '300px';

  // Call a function once, when a node comes near the window, or when the page is printed.
  function near(node, tell) {
    const watch = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && go(), { rootMargin: NEAR });
    function go() {
      watch.disconnect();
      window.removeEventListener('beforeprint', go);
      plotly().then(tell);
    }
    watch.observe(node);
    window.addEventListener('beforeprint', go);
  }

  // Draw what a function returns, when it comes near the window and whenever colours or width change. The function is given the width in pixels and
  // whether that is narrow, and returns traces, layout and a click's handler.
  function place(node, made) {
    let width = 0;
    let ready = false;
    let listening = false;
    let clicked = null;
    // A sheet is narrower than most windows, and nothing scales a chart when it is printed.
    let paper = Infinity;
    const filename = `${document.getElementById('operator').dataset.name.split('/').pop()}-${node.dataset.chart}`;
    const config = { ...CONFIG, toImageButtonOptions: { format: 'svg', filename } };

    function draw() {
      width = Math.min(node.clientWidth, paper);
      if (!width || !ready) {
        return;
      }
      const { traces, layout, click } = made({ width, narrow: width < NARROW });
      clicked = click;
      window.Plotly.react(node, traces, { ...base(), width, ...layout }, config);
      // The chart's name says what it shows; its letters one by one would say nothing.
      node.querySelectorAll('.main-svg').forEach((drawn) => drawn.setAttribute('aria-hidden', 'true'));
      if (!listening) {
        listening = true;
        node.on('plotly_click', (event) => clicked && clicked(event.points[0], event.event));
      }
    }

    window.addEventListener('beforeprint', () => {
      paper = PAPER;
      draw();
    });
    window.addEventListener('afterprint', () => {
      paper = Infinity;
      draw();
    });
    new ResizeObserver(() => Math.min(node.clientWidth, paper) !== width && requestAnimationFrame(draw)).observe(node);
    document.addEventListener('pairbench:theme', draw);
    near(node, () => {
      ready = true;
      draw();
    });
    return {
      draw,
      whole: () => {
        // Only axes that something is drawn on: Plotly has no range for the others.
        const axes = Object.keys(node._fullLayout || {}).filter((name) => /^[xy]axis\d*$/.test(name));
        window.Plotly.relayout(node, Object.fromEntries(axes.map((name) => [`${name}.autorange`, true])));
      },
    };
  }

  // Return the range of an axis for some values, in its own units: never so narrow that noise looks like a change.
  function range(values, log, least = 0.04) {
    const known = values.filter((value) => typeof value === 'number' && Number.isFinite(value) && (!log || value > 0));
    if (!known.length) {
      return undefined;
    }
    let low = known.reduce((one, other) => Math.min(one, other));
    let high = known.reduce((one, other) => Math.max(one, other));
    const middle = (low + high) / 2;
    if (high - low < least * Math.abs(middle)) {
      low = middle - (least / 2) * Math.abs(middle);
      high = middle + (least / 2) * Math.abs(middle);
    }
    if (log) {
      const room = 0.05 * Math.log10(high / low);
      return [Math.log10(low) - room, Math.log10(high) + room];
    }
    return [low - 0.06 * (high - low), high + 0.06 * (high - low)];
  }

  // Return where a logarithmic axis has ticks, for its range in decades.
  const steps = (ends) => (!ends || ends[1] - ends[0] < 0.8 ? 'D1' : ends[1] - ends[0] < 2.5 ? 'D2' : 1);

  // Return nanoseconds in one unit and its name, for an axis: that which fits the value.
  function unit(ns) {
    return (
      [
        [1, 'ns'],
        [1e3, 'us'],
        [1e6, 'ms'],
        [1e9, 's'],
      ]
        .reverse()
        .find(([scale]) => ns >= scale) || [1, 'ns']
    );
  }

  // Return a colour between the ground and another one: text on it stays readable.
  function tint(colour, part) {
    const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    pen.fillStyle = window.pairbench.colour('--ground');
    pen.fillRect(0, 0, 1, 1);
    pen.globalAlpha = part;
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return `rgb(${[...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).join(',')})`;
  }

  // Return a legend below a chart, and how many pixels it takes: as many names in a row as have room.
  function legend(names, width) {
    const entry = Math.max(0, ...names.map((name) => name.length)) * 6.8 + 46;
    const rows = Math.ceil(names.length / Math.max(1, Math.floor((width - 80) / entry)));
    return { below: 19 * rows + 12, legend: { yref: 'container', y: 0, yanchor: 'bottom' } };
  }

  // Fill a <details> with a table when it is opened: nobody pays for what is not read.
  function table(details, made) {
    function fill() {
      if (!details.open) {
        return;
      }
      const { caption, heads, rows } = made();
      const cells = (row) => row.map((cell, at) => element(at ? 'td' : 'th', at ? { class: 'any' } : { scope: 'row' }, cell));
      const drawn = element(
        'table',
        { class: 'cards' },
        element('caption', {}, caption),
        element('thead', {}, element('tr', {}, ...heads.map((head) => element('th', { scope: 'col' }, head)))),
        element('tbody', {}, ...rows.map((row) => element('tr', {}, ...cells(row)))),
      );
      window.pairbench.labelled(drawn);
      const box = element('div', { class: 'scroll tall', tabindex: 0, role: 'region', 'aria-label': caption }, drawn);
      details.replaceChildren(details.querySelector('summary'), box);
    }
    details.ontoggle = fill;
    fill();
  }

  // Go to an address as a link would.
  function follow(href, event) {
    if (event && (event.ctrlKey || event.metaKey || event.button === 1)) {
      window.open(href, '_blank', 'noopener');
    } else {
      window.location.assign(href);
    }
  }

  window.pairbench.charts = {
    text,
    lines,
    colour,
    symbol,
    dash,
    tint,
    place,
    range,
    steps,
    unit,
    legend,
    table,
    follow,
  };
  window.pairbench.operator = {};
})();
