// What is so at one moment: who believes that it holds a lock, what the servers say, and what the resource has seen.
import { shortToken } from './layout.mjs'

const letter = (index) => String.fromCharCode(65 + (index % 26))
const listOf = (words) => (words.length === 0 ? 'nobody' : words.join(' and '))

/** Rows of a table: what, and how it is. */
export function momentOf(trace, now, step) {
  const rows = []
  for (let lock = 0; lock < trace.locks.length; lock += 1) {
    const name = trace.locks.length === 1 ? 'the lock' : `lock ${lock + 1}`
    const held = trace.leases.filter((lease) => lease.lock === lock && isHeld(trace, lease, now, step))
    const who = held.map((lease) => `client ${letter(lease.client)} (claim ${lease.claim})`)
    rows.push([`Believe that they hold ${name}`, listOf(who)])
    for (let server = 0; server < trace.servers.length; server += 1) {
      const where = trace.servers.length === 1 ? 'the server' : `server ${server + 1}`
      const known = (key) => key.lock === lock && key.server === server && key.from <= now
      const stands = trace.keys.filter((key) => known(key) && now < (key.until ?? key.expires ?? Infinity))
      const whose = stands.map((key) => (key.claim === null ? 'another program' : `claim ${key.claim}`))
      rows.push([`On ${where}, ${name} belongs to`, listOf(whose)])
    }
    const seen = trace.writes.filter((write) => write.lock === lock && write.at <= now && write.admitted)
    const highest = Math.max(...seen.map((write) => write.token), 0)
    rows.push([`Highest token that the resource saw`, highest === 0 ? 'none' : shortToken(highest)])
  }
  const still = trace.stops.filter((stop) => stop.from <= now && now < (stop.until ?? Infinity))
  const names = still.map(
    (stop) => `${stop.lane} ${stop.lane === 'client' ? letter(stop.index) : stop.index + 1}: ${stop.what}`,
  )
  rows.push(['Not running', names.length === 0 ? 'nobody' : names.join(', ')])
  return rows
}

/** Whether a client believes in its lease: of what happens at this very moment, only what was told so far counts. */
function isHeld(trace, lease, now, step) {
  if (lease.from > now || (lease.end !== null && lease.end < now)) return false
  const about = (index) => index <= step && trace.leases[trace.steps[index].lease] === lease
  const told = (what) => trace.steps.some((other, index) => other.what === what && other.at === now && about(index))
  if (lease.from === now && !told('granted')) return false
  if (lease.end === now && (told('released') || told('over'))) return false
  const deadlines = lease.deadlines.filter((deadline) => deadline.at <= now)
  return now < deadlines.at(-1).deadline || lease.end === now
}
