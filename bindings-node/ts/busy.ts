// Keeps the process alive while the body of a `using` runs, also when the body waits only for its signal.

import { setInterval } from 'node:timers'

/** The longest interval of a timer. */
const LONG_MS = 2 ** 31 - 1

let bodies = 0
let timer: NodeJS.Timeout | undefined

/** Counts a body that begins. Each needs one {@link end}. */
export function begin(): void {
  bodies += 1
  if (bodies > 1) return
  timer ??= setInterval(() => {}, LONG_MS)
  timer.ref()
}

/** Counts a body that has ended, after the release. */
export function end(): void {
  bodies -= 1
  if (bodies === 0) timer?.unref()
}
