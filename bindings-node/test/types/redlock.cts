// What a program written for the package redlock uses: read by the compiler only.
import redlock = require('onelock/redlock')

async function migrated(locks: redlock.Redlock): Promise<redlock.ExecutionResult> {
  const lock: redlock.Lock = await new redlock.default([...locks.clients]).acquire(['a'], 1000)
  return await lock.release()
}
