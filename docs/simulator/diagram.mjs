// The sequence diagram, as SVG.
import { lanesOf, millis, shortToken, timeScale } from './layout.mjs'

const SVG = 'http://www.w3.org/2000/svg'

function make(parent, name, attributes, text) {
  const node = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value)
  if (text !== undefined) node.textContent = text
  parent.append(node)
  return node
}

const rounded = (number) => Math.round(number * 10) / 10

function line(parent, kind, x1, y1, x2, y2, more = {}) {
  const places = { x1: rounded(x1), y1: rounded(y1), x2: rounded(x2), y2: rounded(y2) }
  return make(parent, 'line', { class: kind, ...places, ...more })
}

function cross(parent, x, y, size = 4) {
  const path = `M${rounded(x - size)} ${rounded(y - size)}l${2 * size} ${2 * size}m0 ${-2 * size}l${-2 * size} ${2 * size}`
  make(parent, 'path', { class: 'cross', d: path })
}

function bar(parent, kind, x, from, to, width, title) {
  const height = Math.max(to - from, 2)
  const places = { x: rounded(x - width / 2), y: rounded(from), width, height: rounded(height) }
  const node = make(parent, 'rect', { class: kind, ...places, rx: 2 })
  make(node, 'title', {}, title)
  return node
}

function patterns(svg) {
  const defs = make(svg, 'defs', {})
  const pattern = (id, kind, path) => {
    const node = make(defs, 'pattern', { id, width: 6, height: 6, patternUnits: 'userSpaceOnUse' })
    make(node, 'path', { class: kind, d: path })
  }
  pattern('hatch', 'hatching', 'M0 6L6 0')
  pattern('crosshatch', 'crosshatching', 'M0 6L6 0M0 0L6 6')
}

const ownerOf = (client) => `o${client % 4}`

/** Draws a schedule; gives back what shows one of its steps. */
export function drawDiagram(svg, header, trace, width) {
  svg.replaceChildren()
  header.replaceChildren()
  const { place, height } = timeScale(trace)
  const { lanes, gap, narrow, x } = lanesOf(trace, width)
  svg.setAttribute('viewBox', `0 0 ${width} ${Math.ceil(height)}`)
  svg.setAttribute('height', Math.ceil(height))
  patterns(svg)
  const group = (name) => make(svg, 'g', { id: name })
  const ground = group('ground')
  for (const lane of lanes) {
    const label = document.createElement('span')
    const note = document.createElement('small')
    note.textContent = lane.note
    label.append(lane.name, note)
    label.style.left = `${lane.x}px`
    header.append(label)
    line(ground, 'lane', lane.x, 0, lane.x, height)
  }
  const scene = { trace, place, x, gap, narrow, width, claims: new Map() }
  for (const lease of trace.leases) scene.claims.set(lease.claim, lease.client)
  drawClock(ground, scene)
  drawFaults(group('faults'), scene)
  drawKeys(group('keys'), scene)
  drawLeases(group('leases'), scene)
  drawStops(group('stops'), scene)
  const messages = drawMessages(group('messages'), scene)
  drawWrites(group('writes'), scene)
  const veil = make(svg, 'rect', { class: 'veil', x: 0, y: 0, width, height })
  const now = line(svg, 'now', 0, 0, width, 0)
  return (step) => {
    const y = place(trace.steps[step]?.at ?? 0)
    veil.setAttribute('y', rounded(y + 1))
    veil.setAttribute('height', rounded(Math.max(height - y, 0)))
    now.setAttribute('y1', rounded(y))
    now.setAttribute('y2', rounded(y))
    svg.querySelector('.chosen')?.classList.remove('chosen')
    messages[trace.steps[step]?.message ?? -1]?.classList.add('chosen')
    return y
  }
}

function drawClock(parent, { trace, place, narrow }) {
  let last = -100
  for (const step of trace.steps) {
    const y = place(step.at)
    if (y - last < 26) continue
    last = y
    const text = narrow ? (step.at / 1e6).toFixed(0) : millis(step.at)
    make(parent, 'text', { class: 'clock', x: 2, y: rounded(y + 3) }, text)
  }
}

function drawFaults(parent, { trace, place, width, narrow }) {
  for (const step of trace.steps) {
    if (step.what !== 'fault' && step.what !== 'violated') continue
    const y = place(step.at)
    line(parent, step.what, narrow ? 34 : 60, y, width, y)
    if (step.what === 'fault' && !narrow) {
      make(parent, 'text', { class: 'label faults', x: width - 4, y: rounded(y - 3), 'text-anchor': 'end' }, step.text)
    }
  }
}

function drawKeys(parent, { trace, place, x, claims }) {
  for (const key of trace.keys) {
    const until = key.until ?? Math.min(key.expires ?? trace.end, trace.end)
    const owner = key.claim === null ? 'other' : ownerOf(clientOf(trace, claims, key.claim))
    const whose = key.claim === null ? 'another program' : `claim ${key.claim}`
    const shift = (key.lock - (trace.locks.length - 1) / 2) * 9
    const title = `lock ${key.lock + 1} on server ${key.server + 1}: ${whose}, ${millis(key.from)} to ${millis(until)}`
    bar(parent, `key ${owner}`, x('server', key.server) + shift, place(key.from), place(until), 8, title)
  }
}

/** Whose claim it is: known from a lease, or from who asked for it. */
function clientOf(trace, claims, claim) {
  if (!claims.has(claim)) {
    const asks = new RegExp(`claims? (?:\\d+ and )*${claim}\\b`)
    claims.set(claim, trace.messages.find((message) => asks.test(message.text))?.client ?? 0)
  }
  return claims.get(claim)
}

function drawLeases(parent, { trace, place, x, gap }) {
  for (const lease of trace.leases) {
    const deadline = lease.deadlines.at(-1).deadline
    const end = lease.end ?? Math.min(deadline, trace.end)
    const centre = x('client', lease.client) + (lease.lock - (trace.locks.length - 1) / 2) * 11
    const token = lease.token === null ? '' : `, fencing token ${lease.token}`
    const title = `claim ${lease.claim}${token}: ${millis(lease.from)} to ${millis(end)}, ${lease.how}; deadline ${millis(deadline)}`
    const [from, to, due] = [place(lease.from), place(end), place(deadline)]
    bar(parent, `lease ${ownerOf(lease.client)}`, centre, from, to, 10, title)
    for (const { at } of lease.deadlines.slice(1)) line(parent, 'notch', centre - 5, place(at), centre + 5, place(at))
    if (due > to + 1) line(parent, `deadline ${ownerOf(lease.client)}`, centre, to, centre, due)
    if (deadline <= trace.end)
      line(parent, `deadline ${ownerOf(lease.client)}`, centre - 7, due, centre + 7, due, {
        'stroke-dasharray': 'none',
      })
    if (lease.token !== null && gap > 90) {
      make(parent, 'text', { class: 'label', x: rounded(centre + 8), y: rounded(from + 9) }, shortToken(lease.token))
    }
  }
}

function drawStops(parent, { trace, place, x }) {
  for (const stop of trace.stops) {
    const until = stop.until ?? trace.end
    const title = `${stop.what} from ${millis(stop.from)} to ${millis(until)}`
    bar(parent, stop.what, x(stop.lane, stop.index), place(stop.from), place(until), 18, title)
  }
}

function drawMessages(parent, { trace, place, x, gap }) {
  return trace.messages.map((message) => {
    const [client, server] = [x('client', message.client), x('server', message.server)]
    const outward = message.way === 'request' || message.way === 'copy'
    const [from, whole] = outward ? [client, server] : [server, client]
    const lost = message.fate === 'lost'
    const to = lost ? from + (whole - from) * 0.6 : whole
    const [y1, y2] = [place(message.sent), place(message.end ?? trace.end)]
    const kind = `message ${message.way}${message.late ? ' late' : ''}${lost ? ' lost' : ''}`
    const node = line(parent, kind, from, y1, to, y2)
    make(node, 'title', {}, `${message.way}${lost ? ', lost' : ''}${message.late ? ', late' : ''}: ${message.text}`)
    if (lost) cross(parent, to, y2)
    else if (message.end !== null) {
      const back = from < to ? -5 : 5
      const slope = ((y2 - y1) / (to - from)) * back
      const tip = `M${rounded(to)} ${rounded(y2)}L${rounded(to + back)} ${rounded(y2 + slope - 3)}L${rounded(to + back)} ${rounded(y2 + slope + 3)}Z`
      make(parent, 'path', { class: 'tip', d: tip })
    }
    if (gap > 130 && message.way !== 'copy') {
      const text = outward ? message.text.split(' for ')[0] : message.text.split(': ').at(-1)
      const short = text.length > 26 ? `${text.slice(0, 25)}…` : text
      const share = outward ? 0.12 : 0.06
      const [px, py] = [from + (to - from) * share, y1 + (y2 - y1) * share - 2]
      const anchor = from < to ? 'start' : 'end'
      make(parent, 'text', { class: 'label', x: rounded(px), y: rounded(py), 'text-anchor': anchor }, short)
    }
    return node
  })
}

function drawWrites(parent, { trace, place, x, gap }) {
  for (const write of trace.writes) {
    const y = place(write.at)
    line(parent, `writing${write.admitted ? '' : ' refused'}`, x('client', write.client), y, x('resource'), y)
    if (write.admitted) make(parent, 'circle', { class: 'admitted', cx: rounded(x('resource')), cy: rounded(y), r: 4 })
    else cross(parent, x('resource'), y, 5)
    if (gap > 90) {
      const attributes = { class: 'label', x: rounded(x('resource') + 7), y: rounded(y + 3) }
      make(parent, 'text', attributes, shortToken(write.token).replace('…', ''))
    }
  }
}
