// What a program written for the package redlock uses: read by the compiler only.
import type { Cluster, Redis } from 'ioredis'
import Redlock, {
  ExecutionError,
  type Lock as HeldLock,
  type RedlockAbortSignal,
  ResourceLockedError,
} from 'onelock/redlock'

async function redlock(redis: Redis, cluster: Cluster) {
  const locks: Redlock = new Redlock([redis, cluster], { retryCount: -1, client: { label: 'orders' } })
  locks.on('error', (error) => error instanceof ResourceLockedError)
  const held: HeldLock = await locks.acquire(['a'], 1000, { retryCount: 0 })
  const longer: HeldLock = await held.extend(1000)
  const { attempts } = await longer.release()
  for (const { votesAgainst } of await Promise.all(attempts)) for (const [, error] of votesAgainst) error.message
  const routine = async (signal: RedlockAbortSignal) => {
    if (signal.aborted) throw signal.error
    return 7
  }
  const seven: number = await locks.using(['a'], 1000, routine)
  const same: number = await locks.using(['a'], 1000, { automaticExtensionThreshold: 100 }, routine)
  const { lease, expiration, value }: { lease: import('onelock').Lease; expiration: number; value: string } = held
  // @ts-expect-error: resources are a list
  await locks.acquire('a', 1000)
  const failed = new ExecutionError('', attempts)
  return [seven, same, lease, expiration, value, failed]
}
