// What the trend says in words: beside a point, below its heading and in its table.
(() => {
  'use strict';

  const { charts, element, short, units } = window.pairbench;
  const WORDS = {
    code: 'moved: code',
    machine: 'moved: machine',
    environment: 'moved: environment',
    control: 'only the control moved',
    era: 'the environment changed',
    definition: 'a new definition',
  };

  const marks = (trend, at) => trend.marks.filter((mark) => mark[0] === at);
  const with_unit = (value, trend) =>
    value === null || value === undefined ? '' : `${units.significant(value)} ${trend.unit}`;

  function hover(data, trend, at) {
    const run = data.runs[trend.runs[at]];
    const control = trend.control[at];
    return charts.lines(
      charts.text(`${run.at} UTC${run.commit ? `, commit ${run.commit}` : ''}`),
      trend.p50[at] !== null && `<b>P50 ${with_unit(trend.p50[at], trend)}</b> ${range(trend, at)}`,
      trend.p95[at] && `P95 ${with_unit(trend.p95[at], trend)}`,
      control && `${charts.text(trend.control_name, 30)} ${with_unit(control, trend)}`,
      trend.speedup[at] && `speedup ${units.ratio(trend.speedup[at])}`,
      ...marks(trend, at).map((mark) => charts.text(mark[2] || WORDS[mark[1]] || mark[1], 70)),
      charts.text(`run ${run.id}`, 40),
    );
  }

  function range(trend, at) {
    const [low, high] = [trend.low[at], trend.high[at]];
    return low && high ? `(${units.significant(low)} to ${units.significant(high)})` : '';
  }

  // Return whether any of its runs has a value.
  const measured = (trend) => trend.p50.some((value) => value !== null);

  function says(data, series) {
    const { trend } = series;
    if (!measured(trend)) {
      return `${short(trend.subtitle, 140)}. ${trend.runs.length ? 'What happened in each is in the table.' : ''}`;
    }
    const moves = trend.marks.filter((mark) => ['code', 'machine', 'environment'].includes(mark[1]));
    const told = moves.length
      ? `Moved ${moves.length === 1 ? 'once' : `${moves.length} times`}, last at ${data.runs[trend.runs[moves[moves.length - 1][0]]].at} UTC: ${moves[moves.length - 1][2] || 'see the table'}.`
      : 'No change of level was found.';
    return `${short(trend.subtitle, 140)}. ${told}`;
  }

  function numbers(data, series) {
    const { trend } = series;
    const rows = trend.runs.map((place, at) => {
      const run = data.runs[place];
      const commit = run.url ? element('a', { href: run.url }, run.commit) : run.commit;
      const what = marks(trend, at).map((mark) => mark[2] || WORDS[mark[1]] || mark[1]);
      return [
        element('a', { href: run.href }, run.at || run.id),
        commit || '',
        with_unit(trend.p50[at], trend),
        range(trend, at).slice(1, -1),
        with_unit(trend.p95[at], trend),
        with_unit(trend.control[at], trend),
        units.ratio(trend.speedup[at]),
        short(what.join('; '), 200),
      ];
    });
    return {
      caption: 'Runs of this series, newest first',
      heads: [
        'Run (UTC)',
        'Commit',
        'P50',
        '95 % interval',
        'P95',
        `Control${trend.control_name ? `: ${short(trend.control_name, 30)}` : ''}`,
        'Speedup',
        'What happened',
      ],
      rows: rows.reverse(),
    };
  }

  window.pairbench.operator.trend_words = { hover, measured, numbers, says };
})();
