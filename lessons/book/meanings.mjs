// Glossary terms that are everyday words, or have other meanings in this field: a tooltip with the
// wrong sentence is worse than none.
//
// only: the pages (without .html) that use the word as the glossary does. not: pages that do not.
// before, after: the text around the word shows another meaning.
//
// tests/book/contexts.txt lists every place in which one of these terms is marked.
export const MEANINGS = {
  'barrier': {not: ['17-beyond', 'claims'], before: /(ranks need a|with no) $/, after: /^ would also/},
  'contribution': {not: ['lab-03-autograd', 'instructor']},
  'deadline': {not: ['instructor']},
  'event': {only: ['kernels-vgpu', 'kernels']},
  'gather': {only: ['labs-nccl']},
  'hook': {not: ['17-beyond', 'lab-17-beyond', 'labs-apps', 'labs-torch', 'tests', 'one-file'], before: /register a $/},
  'kernel': {not: ['11-verbs', '16-checkpoint', 'claims', 'tests-arm64', 'tests'], after: /^ that the|^ chooses|^'s memory/},
  'loss': {after: /^ (of|on) (a |the )?(ranks?|nodes?|link)/, before: /% $/},
  'message': {not: ['08-dataparallel', '17-beyond', 'ai_policy', 'changelog', 'contributing', 'instructor', 'kernels-vgpu', 'labs', 'lab-14-precision'],
              before: /(no|error|same|checker's|gloo's|whose) $/},
  'module': {after: /^ (of Linux|and a conda)/},
  'node': {not: ['03-autograd', 'lab-03-autograd', 'kernels-vgpu']},
  'offset': {not: ['15-profiling', 'lab-15-profiling', 'contributing']},
  'padding': {not: ['20-fit', 'lab-20-fit']},
  'peer': {only: ['kernels-vgpu']},
  'round': {only: ['18-scale', 'runtime-job'], after: /^ trip/},
  'scatter': {only: []},
  'schedule': {not: ['16-checkpoint', 'claims', 'one-file', 'your-own-program'], before: /learning-rate $/},
  'scope': {only: ['19-order', 'kernels-vgpu', 'kernels', 'lab-19-order']},
  'shadow': {},
  'sizes': {only: ['03-autograd', 'lab-01-tensors']},
  'slot': {not: ['10-feeding', 'tests-gpu-first_ten_minutes']},
  'storage': {only: ['lab-01-tensors', 'labs']},
  'store': {only: ['11-verbs', 'instructor', 'lab-00-launch', 'labs-nccl', 'labs-torch', 'ringsmith', 'runtime-comm', 'runtime-job'],
            after: /^ (with|buffering) /},
  'stream': {not: ['contents'], before: /(residual |%  ?\()$/},
  'trace': {not: ['contributing', 'labs-nccl']},
  'tree': {not: ['your-own-program']},
  'view': {},
};

export function meantHere(id, page, before, after) {
  const rule = MEANINGS[id];
  if (!rule) return true;
  if (rule.only && !rule.only.includes(page)) return false;
  if (rule.not?.includes(page)) return false;
  return !rule.before?.test(before) && !rule.after?.test(after);
}
