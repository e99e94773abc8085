// One listener for all calls that wait for a signal, so that Node.js does not warn of a leak.

type Stop = () => void

interface Waiters {
  readonly stops: Set<Stop>
  readonly abort: () => void
}

const waiters = new WeakMap<AbortSignal, Waiters>()

/** Calls `stop` once when the signal aborts, until {@link forget}. */
export function onAbort(signal: AbortSignal, stop: Stop): void {
  let found = waiters.get(signal)
  if (found === undefined) {
    const stops = new Set<Stop>()
    const abort = () => {
      waiters.delete(signal)
      for (const each of stops) each()
    }
    found = { stops, abort }
    waiters.set(signal, found)
    signal.addEventListener('abort', abort, { once: true })
  }
  found.stops.add(stop)
}

/** Undoes {@link onAbort}. */
export function forget(signal: AbortSignal, stop: Stop): void {
  const found = waiters.get(signal)
  if (found === undefined || !found.stops.delete(stop) || found.stops.size > 0) return
  waiters.delete(signal)
  signal.removeEventListener('abort', found.abort)
}
