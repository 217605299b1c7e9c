// node bullmq.mjs PORT SINGLE BULK: one call a job, bulk calls of 500, and a drain of both with 100
// jobs at once. Needs bullmq and ioredis in a node_modules folder here or above.
import { Queue, Worker } from 'bullmq';

const [port, single, bulk] = process.argv.slice(2).map(Number);
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const queue = new Queue('bench', { connection, defaultJobOptions: { removeOnComplete: true } });
const per_s = (count, since) => count / ((performance.now() - since) / 1000);

let began = performance.now();
for (let i = 0; i < single; i++) await queue.add('noop', {});
const submit_per_s = per_s(single, began);

began = performance.now();
for (let i = 0; i < bulk; i += 500) {
  await queue.addBulk(Array.from({ length: 500 }, () => ({ name: 'noop', data: {} })));
}
const bulk_per_s = per_s(bulk, began);

let done = 0, first = 0, cpu;
const count = single + Math.ceil(bulk / 500) * 500;
await new Promise(resolve => new Worker('bench', async () => {
  if (!done) { first = performance.now(); cpu = process.cpuUsage(); }
  if (++done === count) resolve();
}, { connection, concurrency: 100 }));
const drain_per_s = per_s(count, first);
const used = process.cpuUsage(cpu);
console.log(JSON.stringify({
  submit_per_s, bulk_per_s, drain_per_s, worker_us: (used.user + used.system) / count,
}));
process.exit(0);
