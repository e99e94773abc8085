// What runs while a lock is held keeps the process alive, also when it waits for nothing but its signal.

import { setInterval } from 'node:timers'

/** As long as a timer can be. */
const LONG_MS = 2 ** 31 - 1

let bodies = 0
let timer: NodeJS.Timeout | undefined

/** A body begins. To be followed by one {@link end}. */
export function begin(): void {
  bodies += 1
  if (bodies > 1) return
  timer ??= setInterval(() => {}, LONG_MS)
  timer.ref()
}

/** A body has ended, and the lock was given back. */
export function end(): void {
  bodies -= 1
  if (bodies === 0) timer?.unref()
}
