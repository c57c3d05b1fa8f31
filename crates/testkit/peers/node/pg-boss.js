// pg-boss: fills its queue, works it off batch by batch, prints the seconds that took.
import { PgBoss } from "pg-boss";

const [connectionString, , batchText, jobsText] = process.argv.slice(2);
const batch = Number(batchText);
const jobs = Number(jobsText);

const boss = new PgBoss({ connectionString, supervise: false, schedule: false });
await boss.start();
await boss.createQueue("job");
for (let made = 0; made < jobs; made += 1000) {
  await boss.insert("job", Array.from({ length: Math.min(1000, jobs - made) }, () => ({ data: {} })));
}

const start = process.hrtime.bigint();
for (let done = 0; done < jobs; ) {
  const fetched = await boss.fetch("job", { batchSize: batch });
  if (fetched.length === 0) throw new Error(`${done} of ${jobs} jobs were there`);
  await boss.complete("job", fetched.map((job) => job.id));
  done += fetched.length;
}
const end = process.hrtime.bigint();
await boss.stop({ graceful: false });
console.log(Number(end - start) / 1e9);
process.exit(0);
