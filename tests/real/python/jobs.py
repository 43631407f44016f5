"""RQ: a queue of jobs and a worker. usage: jobs.py PORT"""
import datetime
import sys

from redis import Redis
from rq import Queue, Retry, SimpleWorker
from rq.job import Job
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry

import tasks

r = Redis(host="127.0.0.1", port=int(sys.argv[1]))
r.flushall()
high, low = Queue("high", connection=r), Queue("low", connection=r)
jobs = low.enqueue_many([Queue.prepare_data(tasks.add, (i, i)) for i in range(30)])
urgent = high.enqueue(tasks.add, 1, 2)
last = low.enqueue(tasks.add, 3, 4, depends_on=jobs)
failing = low.enqueue(tasks.fail, retry=Retry(max=2))
later = high.enqueue_in(datetime.timedelta(seconds=1000), tasks.add, 5, 5)
assert low.count == 31 and len(ScheduledJobRegistry(queue=high)) == 1, low.count

worker = SimpleWorker([high, low], connection=r)
assert worker.work(burst=True, logging_level="CRITICAL")
assert urgent.return_value() == 3 and last.return_value() == 7
assert [job.return_value() for job in jobs] == [2 * i for i in range(30)]
assert failing.get_status(refresh=True) == "failed" and failing.id in FailedJobRegistry(queue=low)
assert len(FinishedJobRegistry(queue=low)) == 31 and low.count == 0
assert r.lrange("ran", 0, 0) == [b"3"], "the urgent one comes first"
later.cancel()
assert Job.fetch(later.id, connection=r).is_canceled
FailedJobRegistry(queue=low).requeue(failing.id)
assert low.count == 1
low.delete(delete_jobs=True)
print("ok   RQ: priorities, dependencies, retries, a schedule")
