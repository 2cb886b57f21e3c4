// The player of schedules: ranks in a circle, what each chunk of each rank holds, the messages of a
// round, who is stuck, and the simulator's times. Data: schedule_player --json.
'use strict';
(() => {
  const {Book} = globalThis;
  const {tag, words, picture, tone, plural, escape} = Book;

  // A message's round: one more than the latest of what its receiver and its sender did before. Ranks do not run in
  // step; this is the earliest round in which it could happen.
  function roundsOf(data) {
    if (data.rounds) return data.rounds;
    const now = data.start.map(() => 0);
    const posted = new Map();
    const rounds = [[]];
    for (const h of data.run.happenings) {
      if (h.kind === 'posted') {
        posted.set(`${h.rank} ${h.step}`, now[h.rank]);
        continue;
      }
      const sent = h.sender === h.rank ? now[h.rank] : posted.get(`${h.sender} ${h.sender_step}`);
      now[h.rank] = Math.max(now[h.rank], sent) + 1;
      (rounds[now[h.rank]] ??= []).push(h);
    }
    for (let i = 0; i < rounds.length; ++i) rounds[i] ??= [];
    return data.rounds = rounds;
  }

  function stateAt(data, frame) {
    const state = data.start.map(rank => rank.slice());
    roundsOf(data).slice(0, frame + 1).forEach(round => round.forEach(h => {
      const first = data.steps[h.rank][h.step].recv_chunk;
      h.written.forEach((value, i) => { state[h.rank][first + i] = value; });
    }));
    return state;
  }

  const same = (a, b) => a.length === b.length && a.every((o, i) => o[0] === b[i][0] && o[1] === b[i][1]);

  // An ellipse on which no two cards meet: neighbours need room across at the top, and down at the sides.
  function layout(data) {
    const world = data.world, chunks = Math.max(1, data.chunks.length);
    const cell = Math.max(9, Math.min(28, Math.floor((world > 6 ? 100 : 120) / chunks)));
    const stripe = world <= 4 ? 9 : world <= 6 ? 7 : 5;
    const width = Math.max(44, chunks * cell + 8), height = world * stripe + 6;
    const across = world === 1 ? 0 : Math.max(112, (width + 16) / Math.sin(2 * Math.PI / Math.max(4, world)));
    const down = world <= 2 ? 0 : Math.max(88, (world * (height + 36)) / (2 * Math.PI));
    const size = [2 * across + width + 40, 2 * down + height + (world === 2 ? 90 : 44)];
    const begin = world === 2 ? Math.PI : -Math.PI / 2;
    const at = rank => {
      const turn = begin + (rank / world) * 2 * Math.PI;
      return [size[0] / 2 + across * Math.cos(turn), size[1] / 2 + 9 + down * Math.sin(turn)];
    };
    return {cell, stripe, width, height, size, at, chunks};
  }

  function rankCard(data, state, rank, l, blocked) {
    const [cx, cy] = l.at(rank);
    const x = cx - l.width / 2, y = cy - l.height / 2;
    const cells = data.chunks.map((_, c) => {
      const left = cx - (data.chunks.length * l.cell) / 2 + c * l.cell;
      const value = state[rank][c];
      const count = new Map();
      value.forEach(([from]) => count.set(from, (count.get(from) ?? 0) + 1));
      const stripes = [...value.entries()].filter(([i]) => i === 0 || value[i - 1][0] !== value[i][0]).map(([, [from, chunk]]) =>
        tag('rect', {x: left + 2, y: y + 3.5 + from * l.stripe, width: l.cell - 4, height: l.stripe - 1.5, rx: 1,
                     class: `${tone(chunk)}${count.get(from) > 1 ? ' twice' : ''}${chunk !== c ? ' foreign' : ''}`}));
      const done = data.promised[rank][c].length > 0 && same(value, data.promised[rank][c]);
      const wrong = [...count.values()].some(n => n > 1) || value.some(([, chunk]) => data.collective !== 'all_to_all' && chunk !== c);
      return tag('rect', {x: left + 0.5, y: y + 1, width: l.cell - 1, height: l.height - 2, rx: 3,
                          class: `cell${done ? ' done' : ''}${wrong ? ' wrong' : ''}`}) + stripes.join('');
    });
    const node = data.node_of.length > 0 ? ` (node ${data.node_of[rank]})` : '';
    return tag('g', {class: `rank${blocked ? ' stuck' : ''}`},
               tag('rect', {x: x - 3, y: y - 3, width: l.width + 6, height: l.height + 6, rx: 7, class: 'card'}), cells,
               words(cx, y - 9, `rank ${rank}${node}`, 'name'));
  }

  // From one card to another, around the middle so that opposite messages do not lie on each other.
  function arrow(l, from, to, kind, title, shift = 0) {
    const [x1, y1] = l.at(from), [x2, y2] = l.at(to);
    const dx = x2 - x1, dy = y2 - y1, length = Math.hypot(dx, dy) || 1;
    const edge = (x, y, ux, uy) => {  // where the line leaves the card
      const up = uy < 0 ? 27 : 9;  // above a card is its name
      const half = Math.min((l.width / 2 + 7) / Math.max(1e-6, Math.abs(ux)), (l.height / 2 + up) / Math.max(1e-6, Math.abs(uy)));
      return [x + ux * half, y + uy * half];
    };
    const [ax, ay] = edge(x1, y1, dx / length, dy / length);
    const [bx, by] = edge(x2, y2, -dx / length, -dy / length);
    const bend = 16 + shift * 10;
    const qx = (ax + bx) / 2 + (dy / length) * bend, qy = (ay + by) / 2 - (dx / length) * bend;
    const back = Math.atan2(by - qy, bx - qx), wing = 0.42, head = 9;
    const point = turn => `${(bx - head * Math.cos(back + turn)).toFixed(1)} ${(by - head * Math.sin(back + turn)).toFixed(1)}`;
    return tag('g', {class: `message ${kind}`}, tag('title', {}, escape(title)),
               tag('path', {d: `M${ax.toFixed(1)} ${ay.toFixed(1)} Q${qx.toFixed(1)} ${qy.toFixed(1)} ${bx.toFixed(1)} ${by.toFixed(1)}`}),
               tag('path', {class: 'head', d: `M${bx.toFixed(1)} ${by.toFixed(1)} L${point(wing)} L${point(-wing)} z`}));
  }

  const named = (first, n) => n === 1 ? `chunk ${first}` : `chunks ${first} to ${first + n - 1}`;

  function messageOf(data, h) {
    const sent = data.steps[h.sender][h.sender_step], received = data.steps[h.rank][h.step];
    return {from: h.sender, to: h.rank, chunk: received.recv_chunk, reduces: received.reduces,
            text: `rank ${h.sender} sends ${named(sent.send_chunk, sent.chunks)} to rank ${h.rank}, which ` +
              `${received.reduces ? 'adds it to' : 'takes it as'} its ${named(received.recv_chunk, received.chunks)}`};
  }

  function ring(data, frame) {
    const l = layout(data), state = stateAt(data, frame), atEnd = frame >= roundsOf(data).length - 1;
    const blocked = new Map(atEnd ? data.run.blocked.map(b => [b.rank, b]) : []);
    const messages = roundsOf(data)[frame].filter(h => h.sender !== h.rank).map(h => messageOf(data, h));
    const arrows = messages.map(m => arrow(l, m.from, m.to, `${tone(m.chunk)}${m.reduces ? '' : ' copies'}`, m.text));
    const waits = [...blocked.values()].map(b => arrow(l, b.rank, b.peer, 'waits',
      `rank ${b.rank} waits for ${b.sending ? 'a free slot to' : 'a message from'} rank ${b.peer}`, 1));
    return picture(l.size[0], l.size[1], `${data.algorithm} ${data.collective}, ${plural(data.world, 'rank')}: ${caption(data, frame)}`,
                   waits, arrows, data.start.map((_, rank) => rankCard(data, state, rank, l, blocked.has(rank))));
  }

  const digits = seconds => seconds * 1e6 < 10 ? (seconds * 1e6).toFixed(2) : (seconds * 1e6).toFixed(0);

  function times(data) {
    const s = data.simulation;
    if (!s || s.events.length === 0 || s.seconds === 0) return '';
    const left = 48, width = 450, row = 20, top = 8;
    const end = Math.max(...s.finished), x = t => left + (t / end) * (width - left - 8);
    const bars = s.events.map(e => {
      const y = top + e.rank * row;
      const bar = (from, to, kind) => to > from ? tag('rect', {x: x(from), y: y + 3, width: Math.max(0.6, x(to) - x(from)), height: row - 7, class: kind}) : '';
      return e.began < 0 ? '' : tag('g', {}, tag('title', {}, `rank ${e.rank}, step ${e.step}: waits from ${digits(e.began)} to ${digits(e.arrived)} us, done at ${digits(e.finished)} us`),
                                    bar(e.began, e.arrived, 'waiting'), bar(e.arrived, e.finished, 'adding'));
    });
    const bottom = top + data.world * row;
    const ticks = [0, 0.25, 0.5, 0.75, 1].map(part => tag('line', {x1: x(end * part), x2: x(end * part), y1: top, y2: bottom, class: 'tick'}) +
      words(x(end * part), bottom + 15, `${digits(end * part)}${part === 1 ? ' us' : ''}`, 'quiet', part === 1 ? 'end' : part === 0 ? 'start' : 'middle'));
    const legend = [tag('rect', {x: left, y: bottom + 29, width: 11, height: 11, class: 'waiting'}), words(left + 16, bottom + 39, 'waits for its message', 'quiet', 'start'),
                    tag('rect', {x: left + 152, y: bottom + 29, width: 11, height: 11, class: 'adding'}), words(left + 168, bottom + 39, 'adds it', 'quiet', 'start')];
    return picture(width, bottom + 46, `simulated time of each rank, ${digits(end)} microseconds in all`, ticks, bars, legend,
                   data.start.map((_, r) => words(0, top + r * row + row / 2 + 3, `rank ${r}`, 'quiet', 'start')));
  }

  function caption(data, frame) {
    const rounds = roundsOf(data);
    const stuck = frame === rounds.length - 1 && data.run.blocked.length > 0;
    const ending = stuck ? ` Nobody can go on: ${plural(data.run.blocked.length, 'rank')} stuck.` : '';
    if (frame === 0) return `At the start.${ending}`;
    const messages = rounds[frame].filter(h => h.sender !== h.rank).map(h => messageOf(data, h));
    const adds = messages.filter(m => m.reduces).length;
    const what = messages.length === 0 ? 'every rank copies from its own input' :
      `${plural(messages.length, 'message')}, ` + (adds === messages.length ? 'added to what is there' : adds === 0 ? 'replacing what is there' : `${adds} of them added`);
    return `Round ${frame} of ${rounds.length - 1}: ${what}.${ending}`;
  }

  const ALGORITHMS = ['all_reduce ring', 'all_reduce direct', 'all_reduce one_shot', 'all_reduce tree', 'all_reduce halving_doubling',
                      'all_reduce double_tree', 'all_reduce hierarchical', 'all_reduce gloo_ring', 'reduce_scatter ring', 'all_gather ring',
                      'broadcast tree', 'reduce tree', 'gather direct', 'scatter direct', 'all_to_all direct'];

  Book.figure({
    id: 'schedule',
    title: 'A collective, message by message',
    about: 'Each card is a rank, each cell one chunk of its array. A stripe is one rank’s contribution; a framed cell is ' +
      'as promised. Plant a mistake, or take away the slots.',
    lesson: ['chapter 06, The ring', '06-ring.html'],
    controls: [
      {name: 'algorithm', label: 'Algorithm', kind: 'choice', value: 'all_reduce ring', options: ALGORITHMS.map(a => [a, a.replace(' ', ': ')])},
      {name: 'world', label: 'Ranks', kind: 'range', min: 1, max: 8, value: 4},
      {name: 'count', label: 'Elements', kind: 'steps', value: 1048576,
       steps: [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 18, 24, 64, 1024, 16384, 262144, 1048576, 16777216]},
      {name: 'nodes', label: 'Ranks on a node', kind: 'range', min: 1, max: 8, value: 2, when: v => v.algorithm.endsWith('hierarchical')},
      {name: 'slots', label: 'Slots', kind: 'range', min: 0, max: 8, value: 8},
      {name: 'mistake', label: 'Mistake', kind: 'choice', value: '', options: [['', 'none'], ['skip', 'rank 0 leaves out a step'],
        ['wrong_chunk', 'rank 0 sends the wrong chunk'], ['adds_to_the_end', 'adds where it should replace'],
        ['owner_off_by_one', 'halves disagree on the owner'], ['receive_first', 'everyone receives first'],
        ['one_step_short', 'one step too few'], ['remainder_dropped', 'the remainder is dropped']]},
      {name: 'alpha', label: 'Alpha, us', kind: 'steps', value: 5, steps: [0, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000]},
      {name: 'bandwidth', label: 'Link, GB/s', kind: 'steps', value: 10, steps: [0.1, 0.5, 1, 2, 5, 10, 12.5, 25, 50, 100, 400]},
    ],
    first: 1,
    command: v => {
      const [collective, algorithm] = v.algorithm.split(' ');
      // all_to_all has one part for each rank: of equal length.
      const count = collective === 'all_to_all' ? Math.floor(v.count / v.world) * v.world : v.count;
      const args = ['--collective', collective, '--algorithm', algorithm, '--world', String(v.world), '--count', String(count)];
      if (algorithm === 'hierarchical') args.push('--ranks-per-node', String(v.nodes));
      if (v.mistake !== '') args.push('--mistake', v.mistake);
      args.push('--slots', String(v.slots), '--check', '--run');
      if (v.slots > 0) args.push('--simulate', '--alpha', String(v.alpha), '--bandwidth', String(v.bandwidth));
      args.push('--quiet');
      return {program: 'schedule_player', args};
    },
    frames: data => roundsOf(data).length,
    caption,
    draw: (data, frame) => ring(data, Math.min(frame, roundsOf(data).length - 1)) + times(data),
    verdict: data => {
      if (data.faults.length > 0) {
        const more = data.faults.length > 1 ? ` (and ${data.faults.length - 1} more)` : '';
        return {good: false, text: data.faults[0].text + more};
      }
      const time = data.simulation ? `; simulated ${(data.simulation.seconds * 1e6).toFixed(3)} us` : '';
      return {good: true, text: `proved: every promised chunk holds every contribution exactly once${time}`};
    },
  });
})();
