// A lock that survives the loss of a server: independent servers, held by whoever holds a majority of them. The address is
// in $ONELOCK_URL: redlock://host1:6379,host2:6379,host3:6379. A server without an append-only file does not vote in the
// first minute after it was started: it may have forgotten who holds what.
import { Client, NoQuorumError } from 'onelock'

const client = new Client()
try {
  const { server, grade } = await client.check()
  console.log(`${server}, tokens ${grade}`)
  for (let turn = 1; turn <= 3; turn += 1) {
    await client.lock('example:redlock').using({ timeout: 5_000 }, async (_signal, lease) => {
      console.log(`turn ${turn}: held by a majority, fencing token ${lease.fencingToken}`)
    })
  }
} catch (error) {
  if (!(error instanceof NoQuorumError)) throw error
  // what each server said
  console.error([error.message, ...error.causes].join('\n  '))
  process.exitCode = 1
} finally {
  await client.close()
}
