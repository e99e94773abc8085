# frozen_string_literal: true

# What the body of a scope raises.
class Body < StandardError
end

# A defect of this driver or of the scenario.
class Defect < StandardError
end

# Objects by the names that the supervisor gave them.
class Named < Hash
  def get(name)
    fetch(name) { raise Defect, "there is no #{name}" }
  end
end

# Requests, replies and events.
module Protocol
  CLOCK = defined?(Process::CLOCK_BOOTTIME) ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC
  @output = Mutex.new

  class << self
    def now_ns
      Process.clock_gettime(CLOCK, :nanosecond)
    end

    def name(given)
      given.is_a?(Hash) ? [given.fetch("hex")].pack("H*") : given
    end

    def told(name)
      name.encoding == Encoding::UTF_8 ? name : { hex: name.unpack1("H*") }
    end

    # A lease, as every reply about one shows it.
    def view(lease)
      {
        at_ns: now_ns, held: lease.held?, remaining_ms: lease.remaining * 1000, name: lease.name.dup.force_encoding("UTF-8").scrub,
        kind: lease.kind, token: lease.fencing_token, count: lease.hold_count, loss: lease.loss
      }
    end

    # Passes on the events of a hold; a lease that has entered it again leaves that to the outermost one.
    def listen(lease, name)
      return if lease.hold_count > 1

      lease.on_lost { |_, reason| write(event: "lost", lease: name, reason: reason, at_ns: now_ns) }
      lease.on_jeopardy { write(event: "jeopardy", lease: name, at_ns: now_ns) }
    end

    def inspection(found)
      return nil if found.nil?

      owner = found.owner
      {
        kind: found.kind, origin: found.origin, count: found.hold_count, token: found.fencing_token,
        ttl_left_ms: found.ttl_left&.*(1000), foreign_holder: found.foreign_holder, permits: found.permits, free: found.free,
        waiting: found.waiting, waiters: found.waiters.map { |waiter| waiter(waiter) },
        owner: owner && { label: owner.label, host: owner.host, pid: owner.pid, since_ms: ms(owner.since) }
      }
    end

    # All locks, each once, in the order of their names.
    def entries(found)
      found.to_h { |entry| [entry.name.b, entry] }.sort.map do |_, entry|
        inspection(entry.inspection).merge(name: told(entry.name), waiting: entry.waiting)
      end
    end

    def diagnosis(found)
      steps = found.findings.to_h do |finding|
        [finding.step, finding.to_h.except(:step).merge(error: finding.error&.kind)]
      end
      { severity: found.severity, grade: grade(found.grade), steps: steps }
    end

    def write(line)
      text = "#{JSON.generate(line)}\n"
      @output.synchronize do
        $stdout.write(text)
        $stdout.flush
      end
    rescue Errno::EPIPE
      # nobody reads any more: the end of the input will end this process
    end

    private

    def ms(time)
      (time.to_r * 1000).to_i
    end

    def waiter(waiter)
      client = waiter.client
      { client: client && { label: client.label, host: client.host, pid: client.pid }, since_ms: ms(waiter.since) }
    end

    # As the table of options writes it.
    def grade(word)
      word.to_s.split("_").map(&:capitalize).join
    end
  end
end

# One line of the supervisor's.
class Request
  LOCK = %w[ttl_ms auto_renew min_hold_ms max_hold_ms lock_delay_ms min_validity_ms fencing].freeze
  CLIENT = (LOCK + %w[prefix drift_factor min_fencing_grade label inspectable connect_timeout_ms request_timeout_ms
                      close_timeout_ms unreachable_limit_ms quarantine_ms]).freeze
  ALL = (CLIENT + %w[client url kind name also lease wait_ms limit_ms proof request body owner foreign pattern limit cursor
                     permits count]).freeze

  attr_reader :id, :op, :args

  def initialize(line)
    @from_ns = Protocol.now_ns
    request = JSON.parse(line)
    @id = request.fetch("id")
    @op = request.fetch("op")
    @args = request["args"] || {}
  end

  def check
    unknown = args.keys - ALL
    raise Defect, "#{op} has unknown arguments: #{unknown.sort.join(", ")}" unless unknown.empty?
  end

  def name
    Protocol.name(args["name"])
  end

  def pattern
    Protocol.name(args["pattern"])
  end

  def seconds(key)
    args[key]&./(1000.0)
  end

  def client_options
    options(CLIENT)
  end

  # The lock of a client that the arguments describe, and another one where there is a second name.
  def locks_of(client)
    given = options(LOCK)
    given[:owner] = Onelock::Owner.new(args["owner"]) if args.key?("owner")
    args.values_at("name", "also").compact.map do |one|
      name = Protocol.name(one)
      case args["kind"]
      when "semaphore" then client.semaphore(name, args["permits"], **given)
      when "read_lock" then client.rw_lock(name, **given).read
      when "write_lock" then client.rw_lock(name, **given).write
      else client.public_send(args["kind"], name, **given)
      end
    end
  end

  # How many permits an acquire takes.
  def count
    args.key?("count") ? { permits: args["count"] } : {}
  end

  def answer(result)
    Protocol.write(id: id, from_ns: @from_ns, to_ns: Protocol.now_ns, ok: result)
  end

  def fail(error)
    to_ns = Protocol.now_ns
    kind = case error
           when Onelock::Error then error.kind
           when Body then "Body"
           else "Driver"
           end
    message = kind == "Driver" ? "#{error.class}: #{error.message} #{error.backtrace&.first}" : error.message
    Protocol.write(id: id, from_ns: @from_ns, to_ns: to_ns, error: { kind: kind, message: message })
  end

  private

  def options(wanted)
    wanted.filter_map do |key|
      value = args[key]
      next if value.nil?

      value = value / 1000.0 if key.end_with?("_ms")
      [key.delete_suffix("_ms").to_sym, key == "prefix" ? Protocol.name(value) : value]
    end.to_h
  end
end
