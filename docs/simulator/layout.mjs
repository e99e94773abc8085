// Where things are on the picture: time goes down, and long spans in which nothing happens are drawn shorter.

const TOP = 16

/** A function from nanoseconds to pixels, and the height of the whole. */
export function timeScale(trace) {
  const knots = new Set([0, trace.end])
  const add = (time) => time !== null && time <= trace.end && knots.add(time)
  for (const step of trace.steps) add(step.at)
  for (const message of trace.messages) [message.sent, message.end].forEach(add)
  for (const key of trace.keys) [key.from, key.until].forEach(add)
  for (const lease of trace.leases) {
    add(lease.from)
    add(lease.end)
    // one that was renewed in time is of no interest any more
    add(lease.deadlines.at(-1).deadline)
  }
  const times = [...knots].sort((one, other) => one - other)
  const places = [TOP]
  for (let index = 1; index < times.length; index += 1) {
    const span = times[index] - times[index - 1]
    places.push(places[index - 1] + 3 + 7 * Math.log10(1 + span / 50_000))
  }
  const place = (time) => {
    let [low, high] = [0, times.length - 1]
    if (time >= times[high]) return places[high]
    while (high - low > 1) {
      const middle = (low + high) >> 1
      if (times[middle] <= time) low = middle
      else high = middle
    }
    const part = (time - times[low]) / (times[high] - times[low] || 1)
    return places[low] + part * (places[high] - places[low])
  }
  return { place, height: places.at(-1) + 40 }
}

const letterOf = (index) => String.fromCharCode(65 + (index % 26))

/** The columns: clients, servers, and the resource. */
export function lanesOf(trace, width) {
  const narrow = width < 600
  const drift = (ppm) => `${ppm < 0 ? '−' : '+'}${(Math.abs(ppm) / 10_000).toFixed(2)} %`
  const one = trace.servers.length === 1
  const serverName = (index) => {
    if (one) return 'Server'
    return narrow ? `S${index + 1}` : `Server ${index + 1}`
  }
  const lanes = [
    ...trace.clients.map((ppm, index) => {
      const name = narrow ? letterOf(index) : `Client ${letterOf(index)}`
      return { key: `client${index}`, name, note: drift(ppm) }
    }),
    ...trace.servers.map((ppm, index) => ({ key: `server${index}`, name: serverName(index), note: drift(ppm) })),
    { key: 'resource0', name: narrow ? 'Res.' : 'Resource', note: '' },
  ]
  const left = narrow ? 62 : 92
  const gap = (width - left - (narrow ? 24 : 60)) / (lanes.length - 1)
  lanes.forEach((lane, index) => {
    lane.x = left + index * gap
  })
  return { lanes, gap, narrow, x: (what, index = 0) => lanes.find((lane) => lane.key === what + index)?.x ?? 0 }
}

/** The last digits of a fencing token: enough to tell it from its neighbours. */
export const shortToken = (token) => (String(token).length > 7 ? `…${String(token).slice(-6)}` : String(token))

export const millis = (nanos) => `${(nanos / 1e6).toFixed(1)} ms`
