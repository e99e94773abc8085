// Releases what is held when a signal ends the process.

import { constants } from 'node:os'
import { invalid } from './errors'
import { releaseAll } from './pump'

const TRIED = 'listen to a signal'
const watched = new Set<NodeJS.Signals>()

/**
 * From now on, what is held is released, within a second, when one of these signals ends the process: `SIGTERM` and `SIGINT`
 * (Ctrl-C) if none are named. Without this call Node.js ends at once, and others wait for the ttl.
 *
 * The process still ends by that signal. A signal that has another listener when it arrives is left to that listener: when
 * it exits normally, what is held is released anyway. The body of a `using` does not continue. A blocked event loop delays
 * the end. Locks of `acquire` in `onelock/redlock` are not released.
 *
 * Call it in the main thread. Further calls are allowed.
 *
 * ```ts
 * releaseOnSignal()
 * ```
 *
 * @throws {InvalidArgumentError} for a signal that cannot be listened to
 */
export function releaseOnSignal(...signals: NodeJS.Signals[]): void {
  for (const signal of signals.length === 0 ? (['SIGTERM', 'SIGINT'] as const) : signals) {
    if (watched.has(signal)) continue
    if (!Object.hasOwn(constants.signals, signal)) throw invalid(TRIED, `${String(signal)} is no signal`)
    const end = () => {
      if (process.listenerCount(signal) > 1) return
      try {
        releaseAll()
      } finally {
        // ends the process as without a listener
        process.removeListener(signal, end)
        process.kill(process.pid, signal)
      }
    }
    try {
      // before listeners that are removed when they run
      process.prependListener(signal, end)
    } catch (error) {
      throw invalid(TRIED, `${String(signal)}: ${(error as Error).message}`)
    }
    watched.add(signal)
  }
}
