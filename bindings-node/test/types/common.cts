// What programs may write: read by the compiler only. As module.mts, from CommonJS.
import onelock = require('onelock')

async function main(): Promise<void> {
  const client: onelock.Client = await onelock.Client.connect('redis://localhost', { ttl: 10_000 })
  await using lease = await client.lock('orders:42').acquire({ timeout: 5_000 })
  const token: number | null = lease.fencingToken
  const value: number = await client.lock('orders:42').using(async (signal) => (signal.aborted ? 1 : 2))
  lease.on('lost', (reason) => reason === 'taken')
  // @ts-expect-error the reason is one of four
  lease.on('lost', (reason) => reason === 'stolen')
}

main().catch((error: unknown) => {
  if (error instanceof onelock.LockLostError) console.log(error.reason, error.code)
})
