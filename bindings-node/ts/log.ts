// Log lines of the library, passed to a function of the program.

import { debuglog } from 'node:util'
import { invalid } from './errors'
import { pump, warn } from './pump'

/**
 * The level of a log line.
 *
 * - `error`: defects of this library
 * - `warn`: losses, missed renewals, settings of servers that can break locks
 * - `info`: events of normal use, such as a connection
 * - `debug`: connections, retries, every acquire and release
 * - `trace`: everything
 */
export type LogLevel = 'error' | 'warn' | 'info' | 'debug' | 'trace'

/** Takes a log line. An error that it throws becomes a process warning. */
export type Logger = (level: LogLevel, message: string) => void

const LEVELS = ['error', 'warn', 'info', 'debug', 'trace'] as const

/**
 * Sets the function of this thread that takes log lines up to this level, in place of the one before; `null` removes it.
 * Without a function nothing is logged, unless `NODE_DEBUG=onelock` is set: then everything up to `debug` goes to standard
 * error.
 *
 * ```ts
 * setLogger((level, message) => logger[level](message), 'warn')
 * ```
 *
 * Lines are queued for the event loop. While it is blocked they wait, and some may be dropped.
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
