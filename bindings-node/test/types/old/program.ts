// A program for old compilers: what the package exports is found under every way of finding modules.
import { Client, type Lease, LockTimeoutError } from 'onelock'
import Redlock, { ExecutionError, type Lock } from 'onelock/redlock'

const client = new Client('memory://')

export async function work(): Promise<number | null> {
  const lease: Lease = await client.lock('x').acquire({ timeout: 5 })
  lease.on('lost', (reason, error) => {
    const told: [string, string] = [reason, error.code]
    console.log(told)
  })
  const signal: AbortSignal = lease.signal
  console.log(signal.aborted)
  return lease.fencingToken
}

export async function migrate(clients: ConstructorParameters<typeof Redlock>[0]): Promise<number> {
  const redlock = new Redlock(clients, { retryCount: 1 })
  const lock: Lock = await redlock.acquire(['x'], 1000)
  return lock.expiration
}

export const errors = [LockTimeoutError, ExecutionError]
