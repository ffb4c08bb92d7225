// Numbers as people read them: what report/units.py is for the templates, and the same results.
(() => {
  'use strict';

  const TIMES = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']];
  const SIZES = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']];
  const WIDEST = 10;

  const missing = (value) => value === null || value === undefined || Number.isNaN(value);

  function significant(value, digits = 4) {
    if (missing(value)) {
      return '';
    }
    if (value === 0 || !Number.isFinite(value)) {
      return String(value);
    }
    const rounded = Number(value.toExponential(digits - 1));
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(rounded))));
    return rounded.toFixed(Math.min(places, 100));
  }

  function scaled(value, units) {
    if (missing(value)) {
      return '';
    }
    const rounded = Math.abs(Number(value.toExponential(3)));
    const [scale, unit] = units.find((entry) => rounded >= entry[0]) || units[units.length - 1];
    return `${significant(value / scale)} ${unit}`;
  }

  function ratio(value) {
    return missing(value) ? '' : `${significant(value, value >= 1 ? 4 : 3)}x`;
  }

  function change(value) {
    if (missing(value) || !Number.isFinite(value)) {
      return '';
    }
    const part = value - 1;
    if (part >= WIDEST) {
      return `${significant(value, 3)}x`;
    }
    const digits = Math.abs(part) < 0.1 ? 2 : Math.abs(part) < 1 ? 1 : 0;
    const text = (100 * part).toFixed(digits);
    // -0.00 is no change in any direction.
    return `${Number(text) < 0 ? '' : '+'}${Number(text) === 0 ? text.replace('-', '') : text}%`;
  }

  window.pairbench.units = {
    significant,
    ratio,
    change,
    duration: (ns) => scaled(ns, TIMES),
    size: (bytes) => (!missing(bytes) && Math.abs(bytes) < 1024 ? `${bytes.toFixed(0)} B` : scaled(bytes, SIZES)),
    count: (value) => (missing(value) ? '' : Math.round(value).toLocaleString('en-US')),
    percent: (part) => (missing(part) ? '' : `${significant(100 * part, 2)}%`),
    // Return the number that one of these has said, in ns or bytes where it has such a unit; NaN for other text.
    value: (text) =>
      Number.parseFloat(text.replaceAll(',', '')) * ([...TIMES, ...SIZES].find(([, unit]) => text.endsWith(` ${unit}`)) || [1])[0],
    // Return the ends of an interval like `2.468x to 2.494x`; `say` is one of the functions here.
    between: (low, high, say) => (missing(low) || missing(high) ? '' : `${say(low)} to ${say(high)}`),
  };
})();
