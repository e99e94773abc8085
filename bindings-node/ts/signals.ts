// Giving back what is held when a signal ends the process.

import { constants } from 'node:os'
import { invalid } from './errors'
import { giveBack } from './pump'

const TRIED = 'listen to a signal'
const watched = new Set<NodeJS.Signals>()

/**
 * From now on, what is held is given back, within a second, when one of these signals ends the process: `SIGTERM` and
 * `SIGINT` (Ctrl-C) if none are named. By itself Node.js ends at once, and others wait for the ttl.
 *
 * Nothing else changes: the process still ends by that signal. A signal that something else listens to when it comes is left
 * alone: whoever handles it ends the program in good order, and then what is held is given back anyway. The body of a
 * `using` does not run on. A blocked event loop delays the end. Locks of `onelock/redlock`'s `acquire` stay, as ever.
 *
 * To be called in the main thread, once or more often.
 *
 * ```ts
 * giveBackOnSignal()
 * ```
 *
 * @throws {InvalidArgumentError} for a signal that cannot be listened to
 */
export function giveBackOnSignal(...signals: NodeJS.Signals[]): void {
  for (const signal of signals.length === 0 ? (['SIGTERM', 'SIGINT'] as const) : signals) {
    if (watched.has(signal)) continue
    if (!Object.hasOwn(constants.signals, signal)) throw invalid(TRIED, `${String(signal)} is no signal`)
    const end = () => {
      if (process.listenerCount(signal) > 1) return
      try {
        giveBack()
      } finally {
        // as if nobody listened
        process.removeListener(signal, end)
        process.kill(process.pid, signal)
      }
    }
    try {
      // first: those that listen once are still there
      process.prependListener(signal, end)
    } catch (error) {
      throw invalid(TRIED, `${String(signal)}: ${(error as Error).message}`)
    }
    watched.add(signal)
  }
}
