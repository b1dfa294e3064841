// Hot functions that are optimized and given up again, exceptions, a worker, an exit status.
const { Worker, isMainThread, parentPort } = require('worker_threads');
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function deep(n) { if (n === 0) throw new Error('bottom'); return deep(n - 1) + 1; }
function add(a, b) { return a + b; }
if (isMainThread) {
  let sum = 0, caught = 0, text = '';
  for (let i = 0; i < 10; i++) sum += fib(18);
  for (let i = 0; i < 50000; i++) sum = add(sum, i);
  for (let i = 0; i < 10; i++) text = add(text, i);
  for (let i = 0; i < 500; i++) { try { deep(i % 10); } catch (e) { caught++; } }
  console.log(sum, text, caught, [3, 1, 2].map((x) => x * 2).sort().join());
  const worker = new Worker(__filename);
  worker.on('message', (m) => console.log('worker', m));
  worker.on('exit', (code) => { console.log('exit', code); process.exit(3); });
} else {
  let sum = 0;
  for (let i = 0; i < 3e5; i++) sum += i % 7;
  parentPort.postMessage(sum);
}
