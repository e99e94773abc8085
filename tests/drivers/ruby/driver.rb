# frozen_string_literal: true

# The Ruby driver: carries out what the supervisor asks for, one line of JSON at a time, with a thread for each request. The
# protocol stands in `tests/drivers/README.md`.

require "json"
require "onelock"
require_relative "protocol"

class Driver
  OF_LEASE = %w[check release extend downgrade detach wait_lost].freeze

  def initialize
    @clients = Named.new
    @leases = Named.new
    @cancels = {}
  end

  def run(requests)
    requests.each_line do |line|
      request = Request.new(line)
      # before the thread runs: a cancel may be the next line
      @cancels[request.id] = Onelock::Cancel.new
      Thread.new { serve(request) }
    end
  end

  private

  def serve(request)
    request.check
    request.answer(act(request))
  rescue StandardError => e
    request.fail(e)
  ensure
    @cancels.delete(request.id)
  end

  def act(request)
    args = request.args
    case request.op
    when "hello"
      { protocol: 1, language: "ruby", mode: "threads", pid: Process.pid, now_ns: Protocol.now_ns }
    when "client"
      @clients[args["client"]] = Onelock::Client.open(args["url"], **request.client_options)
      nil
    when "acquire" then granted(request, acquire(request))
    when "try_acquire" then lock(request).try_acquire(**request.count)&.then { |lease| granted(request, lease) }
    when "attach" then granted(request, lock(request).attach(args["proof"]))
    when "with" then scope(request)
    when "is_locked" then lock(request).locked?
    when "permits" then lock(request).permits&.to_h
    when "set_permits" then lock(request).set_permits(args["permits"])&.to_h
    when "cancel"
      @cancels[args["request"]]&.cancel
      nil
    when "close", "stats", "inspect", "diagnose", "list", "force_release" then of_client(request, @clients.get(args["client"]))
    when "drop"
      # what nobody refers to is released when it is collected, which nobody can wait for
      @leases.delete(args["lease"])&.release
      nil
    else of_lease(request)
    end
  end

  def of_client(request, client)
    args = request.args
    case request.op
    when "close" then client.close
    when "stats" then client.stats.to_h.slice(:held, :waiting, :cleaning, :lost)
    when "inspect" then Protocol.inspection(client.inspect(request.name))
    when "diagnose" then Protocol.diagnosis(client.diagnose(request.name))
    when "force_release" then client.force_release(request.name, foreign: args.fetch("foreign", false))
    when "list"
      return Protocol.entries(client.listing(request.pattern)) unless args.key?("limit")

      page = client.list(request.pattern, limit: args["limit"], cursor: args["cursor"])
      { entries: Protocol.entries(page.entries), next: page.next }
    end
  end

  def of_lease(request)
    args = request.args
    raise Defect, "there is no operation #{request.op}" unless OF_LEASE.include?(request.op)

    lease = @leases.get(args["lease"])
    case request.op
    when "release" then return lease.release
    when "detach" then return lease.detach
    when "wait_lost" then return lease.wait_lost(args["limit_ms"] / 1000.0)
    when "extend" then lease.extend(args["ttl_ms"] / 1000.0)
    when "downgrade" then lease.downgrade
    end
    Protocol.view(lease)
  end

  def lock(request)
    locks = request.locks_of(@clients.get(request.args["client"]))
    locks.size == 1 ? locks.first : Onelock::MultiLock.new(*locks)
  end

  def acquire(request)
    lock(request).acquire(wait: request.seconds("wait_ms"), cancel: @cancels[request.id], **request.count)
  end

  def granted(request, lease)
    Protocol.listen(lease, request.args["lease"])
    @leases[request.args["lease"]] = lease
    Protocol.view(lease)
  end

  def scope(request)
    lock(request).synchronize do |lease|
      Protocol.listen(lease, request.args["lease"])
      seen = Protocol.view(lease)
      case request.args["body"]
      when "fail" then raise Body, "the body failed"
      when "until_free" then sleep(0.01) while lock(request).locked?
      when "until_lost" then nil until lease.wait_lost(1)
      end
      seen
    end
  end
end

Driver.new.run($stdin)
# without an orderly end: what is still held then ends as it does when a process is killed
exit!(0)
