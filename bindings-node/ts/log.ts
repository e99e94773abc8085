// What the library has to say, given to a function of the program.

import { debuglog } from 'node:util'
import { invalid } from './errors'
import { pump, warn } from './pump'

/**
 * How important a log line is.
 *
 * - `error`: defects
 * - `warn`: what somebody should look at: losses, missed renewals, servers that break locks
 * - `info`: what is worth a line in normal use
 * - `debug`: connections, retries, every lock taken and given back
 * - `trace`: everything
 */
export type LogLevel = 'error' | 'warn' | 'info' | 'debug' | 'trace'

/** Takes a log line. What it throws becomes a process warning. */
export type Logger = (level: LogLevel, message: string) => void

const LEVELS = ['error', 'warn', 'info', 'debug', 'trace'] as const

/**
 * Sets the one function of this thread that is given what the library logs, up to this level, in place of the one before;
 * `null` takes it away. Without one nothing is logged, unless `NODE_DEBUG=onelock` is set: then everything up to `debug`
 * goes to standard error.
 *
 * ```ts
 * setLogger((level, message) => logger[level](message), 'warn')
 * ```
 *
 * Lines are queued for the event loop: while that is blocked they wait, and the most verbose may be left out.
 */
export function setLogger(logger: Logger | null, level: LogLevel = 'warn'): void {
  const number = LEVELS.indexOf(level) + 1
  if (number === 0) throw invalid('set the logger', `the level must be one of ${LEVELS.join(', ')}`)
  if (logger === null) {
    pump.log(0, undefined)
    return
  }
  if (typeof logger !== 'function') throw invalid('set the logger', 'the logger must be a function or null')
  pump.log(number, (said, text) => {
    try {
      logger(LEVELS[said - 1] ?? 'trace', text)
    } catch (thrown) {
      warn(`the logger threw: ${String(thrown)}`, 'ONELOCK_LOGGER_THREW')
    }
  })
}

const debug = debuglog('onelock')
if (debug.enabled) setLogger((level, message) => debug('%s %s', level, message), 'debug')
