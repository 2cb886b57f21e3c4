// Gives a figure its controls and runs its program: from its WebAssembly module, in this page, on
// every change.
//
//     control changed ──► command(values) ──► the program's main(), twice: as text and as --json
//                                              │                      │
//                              "In a terminal" ◄┘      drawing, verdict ◄┘
'use strict';
(() => {
  const base = document.body.dataset.base;

  const loading = new Map();
  const script = src => {
    if (!loading.has(src)) loading.set(src, new Promise((done, failed) => {
      const element = document.createElement('script');
      element.src = `${base}/${src}`;
      element.onload = done;
      element.onerror = () => failed(new Error(`cannot load ${src}`));
      document.head.append(element);
    }));
    return loading.get(src);
  };

  // base64 of zlib's format -> bytes.
  function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))).arrayBuffer();
  }

  // The program as a function of its arguments: {code, text}. One instance serves all calls.
  const programs = new Map();
  function compiled(id) {
    if (!programs.has(id)) programs.set(id, (async () => {
      await script(`live/${id}.js`);
      const lines = [];
      const wasmBinary = await unpacked(Book.packed[id]);
      const module = await globalThis[`Book_${id}`]({wasmBinary, noInitialRun: true, print: line => lines.push(line), printErr: line => lines.push(line)});
      return args => {
        lines.length = 0;
        const stack = module.stackSave();
        let code = 0;
        try {
          code = module.callMain(args);
        } catch (stop) {
          if (stop.name !== 'ExitStatus') throw stop;
          code = stop.status;
        } finally {
          module.stackRestore(stack);
        }
        return {code: code ?? 0, text: lines.join('\n')};
      };
    })());
    return programs.get(id);
  }

  async function recorded(id) {
    await script(`live/${id}.js`);
    return args => {
      const json = args.includes('--json');
      const {text, json: data} = Book.recorded[id][args.filter(a => a !== '--json').join(' ')];
      return {code: 0, text: (json ? data : text).replace(/\n$/, '')};
    };
  }

  class Live {
    constructor(section, figure) {
      this.section = section;
      this.figure = figure;
      this.values = Book.defaults(figure);
      this.part = name => section.querySelector(`.live-${name}`);
      this.frame = figure.first ?? null;
      this.buildControls();
      this.run();
    }

    buildControls() {
      const form = document.createElement('form');
      form.className = 'controls';
      form.addEventListener('submit', event => event.preventDefault());
      this.inputs = this.figure.controls.map(control => this.control(form, control));
      this.part('controls').append(form);
      if (this.figure.still) return;
      this.player = document.createElement('div');
      this.player.className = 'player';
      this.player.innerHTML = `<button type="button" data-go="-1" aria-label="One back">◀</button>
<button type="button" data-go="play" aria-label="Play">▶ Play</button>
<button type="button" data-go="1" aria-label="One on">▶</button>
<input type="range" min="0" value="0" aria-label="Position">
<p class="caption" aria-live="polite"></p>`;
      this.part('drawing').before(this.player);
      this.slider = this.player.querySelector('input');
      this.player.addEventListener('click', event => {
        const go = event.target.closest('button')?.dataset.go;
        if (go === 'play') return this.playing ? this.stop() : this.play();
        if (go) this.show(this.frame + Number(go), true);
      });
      this.slider.addEventListener('input', () => this.show(Number(this.slider.value), true));
    }

    control(form, control) {
      const id = `${this.section.id || this.figure.id}-${control.name}-${Live.count = (Live.count ?? 0) + 1}`;
      const row = document.createElement('div');
      row.className = `control ${control.kind}`;
      const label = document.createElement('label');
      label.htmlFor = id;
      label.textContent = control.label;
      let input;
      if (control.kind === 'choice') {
        input = document.createElement('select');
        for (const [value, text] of control.options) input.add(new Option(text, value));
        input.value = control.value;
      } else {
        input = document.createElement('input');
        input.type = control.kind === 'text' ? 'text' : 'range';
        if (control.kind === 'text') {
          input.maxLength = control.max;
          input.spellcheck = false;
          const list = document.createElement('datalist');
          list.id = `${id}-list`;
          for (const text of control.suggestions) list.append(new Option(text));
          input.setAttribute('list', list.id);
          row.append(list);
        }
        Object.assign(input, control.kind === 'steps' ? {min: 0, max: control.steps.length - 1, step: 1} :
          control.kind === 'range' ? {min: control.min, max: control.max, step: control.step ?? 1} : {});
        input.value = control.kind === 'steps' ? control.steps.indexOf(control.value) : control.value;
      }
      input.id = id;
      input.name = control.name;
      const output = document.createElement('output');
      output.htmlFor = id;
      const say = () => {
        const value = control.kind === 'steps' ? control.steps[input.value] : control.kind === 'range' ? Number(input.value) : input.value;
        this.values[control.name] = value;
        if (input.type === 'range') {
          output.textContent = value.toLocaleString('en');
          input.setAttribute('aria-valuetext', output.textContent);
        }
      };
      say();
      input.addEventListener('input', () => {
        say();
        this.stop();
        this.run();
      });
      row.append(label, input);
      if (input.type === 'range') row.append(output);
      form.append(row);
      return {control, row};
    }

    // Only the newest run is shown: a slider asks faster than programs answer.
    async run() {
      const turn = this.turn = (this.turn ?? 0) + 1;
      for (const {control, row} of this.inputs) row.hidden = control.when !== undefined && !control.when(this.values);
      const {program, args} = this.figure.command(this.values);
      const line = [program, ...args.map(a => /[\s*()=]/.test(a) ? `"${a}"` : a)].join(' ');
      try {
        const main = await (this.figure.recorded ? recorded(this.figure.id) : compiled(this.figure.id));
        if (turn !== this.turn) return;
        const {code, text} = main(args);
        this.part('text').querySelector('code').innerHTML = `<span class="typed"><span class="prompt">$ </span>${Book.escape(line)}</span>\n` +
          `<span class="printed">${Book.escape(text)}</span>`;
        const answer = main([...args, '--json']);
        const at = answer.text.indexOf('{');
        if (at !== 0) throw new Error(text || answer.text);
        this.data = JSON.parse(answer.text.split('\n')[0]);
        this.section.dataset.code = code;
        const verdict = this.figure.verdict(this.data);
        this.say(verdict.text, verdict.good);
        this.show(this.frame ?? Book.last(this.figure, this.data), false);
      } catch (error) {
        if (turn !== this.turn) return;
        this.data = null;
        this.say(error.message, false);
      }
      this.section.dataset.command = JSON.stringify([program, ...args]);
      this.section.dataset.turn = turn;  // tests wait for it
    }

    say(text, good) {
      const verdict = this.part('verdict');
      verdict.textContent = text;
      verdict.classList.toggle('good', good);
      verdict.classList.toggle('bad', !good);
    }

    show(frame, chosen) {
      if (!this.data) return;
      if (chosen) this.stop(false);
      const last = Book.last(this.figure, this.data);
      // A run that gets stuck is shown where it stuck.
      if (!chosen && this.data.run?.blocked.length > 0) frame = last;
      const shown = Math.max(0, Math.min(frame, last));
      if (chosen || this.frame === null || frame === this.frame) this.frame = shown;
      this.part('drawing').innerHTML = this.figure.draw(this.data, shown);
      if (!this.player) return;
      this.slider.max = last;
      this.slider.value = shown;
      const caption = this.figure.caption(this.data, shown);
      this.slider.setAttribute('aria-valuetext', caption);
      this.player.querySelector('.caption').textContent = caption;
      this.player.hidden = this.figure.frames(this.data) === 0;
    }

    play() {
      const last = Book.last(this.figure, this.data ?? {});
      const button = this.player.querySelector('[data-go=play]');
      button.textContent = '❚❚ Pause';
      button.setAttribute('aria-label', 'Pause');
      if (this.frame >= last) this.frame = -1;
      const step = () => {
        const keep = this.playing;
        this.show(this.frame + 1, true);
        if (this.frame >= last) return this.stop();
        this.playing = keep;
      };
      this.playing = setInterval(step, matchMedia('(prefers-reduced-motion: reduce)').matches ? 2000 : 900);
      step();
    }

    stop(all = true) {
      if (!this.player || !this.playing) return;
      if (!all) return;  // play() itself shows the next frame
      clearInterval(this.playing);
      this.playing = null;
      const button = this.player.querySelector('[data-go=play]');
      button.textContent = '▶ Play';
      button.setAttribute('aria-label', 'Play');
    }
  }

  // A figure begins to live at the press of its button: only then is its module fetched.
  async function start() {
    await script('site/figures.js');
    const sections = [...document.querySelectorAll('section.live')];
    const begin = async section => {
      if (section.dataset.begun) return;
      section.dataset.begun = 'yes';
      const id = section.dataset.figure;
      await script(`site/figures/${id}.js`);
      section.controller = new Live(section, Book.figures[id]);
    };
    for (const section of sections) {
      const button = document.createElement('button');
      button.type = 'button';
      button.className = 'live-start';
      button.textContent = 'Play with this figure';
      section.querySelector('.live-controls').append(button);
      button.addEventListener('click', async () => {
        button.disabled = true;
        await begin(section);
        button.remove();
        section.querySelector('.controls select, .controls input')?.focus();
      });
    }
  }
  start();
})();
