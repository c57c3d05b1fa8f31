// graphile-worker: fills its queue, works it off, prints the seconds that took.
// "default" fetches and completes jobs one by one, so many at once as a batch is long; "batched" has a local queue of that
// length and completes jobs together.
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const [connectionString, mode, batchText, jobsText] = process.argv.slice(2);
const batch = Number(batchText);
const jobs = Number(jobsText);
const logger = new Logger(() => () => {});

const utils = await makeWorkerUtils({ connectionString, logger });
await utils.migrate();
await utils.withPgClient((client) =>
  client.query("select graphile_worker.add_job('job', '{}'::json) from generate_series(1, $1::int)", [jobs]),
);
await utils.release();

const worker =
  mode === "batched"
    ? { concurrentJobs: batch, localQueue: { size: batch }, completeJobBatchDelay: 0 }
    : { concurrentJobs: batch };
let start;
const runner = await run({
  preset: { worker: { connectionString, ...worker } },
  logger,
  noHandleSignals: true,
  taskList: {
    job: async () => {
      start ??= process.hrtime.bigint();
    },
  },
});
let done = 0;
await new Promise((resolve) => {
  runner.events.on("job:complete", () => {
    done += 1;
    if (done === jobs) resolve();
  });
});
const end = process.hrtime.bigint();
await runner.stop();
console.log(Number(end - start) / 1e9);
process.exit(0);
