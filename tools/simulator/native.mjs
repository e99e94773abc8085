// What the native program says of schedules.
import { execFileSync } from 'node:child_process'

const options = { encoding: 'utf8', maxBuffer: 1 << 30 }

export const storiesOf = (program) => JSON.parse(execFileSync(program, [], options))

/** The traces of schedules such as `{ story, seed, bug }`, as text. */
export function tracesOf(program, schedules) {
  const lines = schedules.map(({ story, seed, bug }) =>
    [story, seed, bug].filter((word) => word !== undefined).join(' '),
  )
  const text = execFileSync(program, ['-'], { ...options, input: `${lines.join('\n')}\n` })
  const traces = text.split('\n').slice(0, -1)
  if (traces.length !== schedules.length) throw new Error(`${schedules.length} schedules, ${traces.length} traces`)
  return traces
}
