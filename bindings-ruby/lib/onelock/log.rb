# frozen_string_literal: true

module Onelock
  # Log lines of the library and of this gem, which go to the logger of the program.
  module Log
    LEVELS = %w[off error warn info debug trace].freeze
    SEVERITIES = { error: 3, warn: 2, info: 1, debug: 0, trace: 0 }.freeze

    FUNCTION = FFI::Function.new(:void, %i[uint32 string pointer]) do |level, message, _|
      Events.push(:log, LEVELS.fetch(level).to_sym, Native.text(message))
    end
    FUNCTION.autorelease = false

    class << self
      attr_reader :logger

      def set(logger, level)
        number = Arguments.word(level, "level", LEVELS)
        # the former one is not called any more when this has returned
        Native.call(:log_set, 0, nil, nil)
        @logger = logger
        Native.call(:log_set, number, FUNCTION, nil) if logger
      end

      # A line for the program's logger; an error without one goes to standard error.
      def line(level, message)
        if @logger
          @logger.add(SEVERITIES.fetch(level), message, "onelock")
        elsif level == :error
          warn("onelock: #{message}")
        end
      rescue StandardError => e
        warn("onelock: the logger raised #{e.class}: #{e.message}")
      end
    end

    # While the program ends its objects are finalized, and after that nothing can be called.
    ObjectSpace.define_finalizer(FUNCTION, proc { Native.log_set(0, nil, nil, nil) })
  end
  private_constant :Log

  # Sends log lines to `logger` (a `Logger`, or anything with its `add`), up to `level`: `:error`, `:warn`, `:info`, `:debug` or
  # `:trace`. `nil` ends it. They come from one thread, a moment after what they tell.
  #
  #   Onelock.log(Logger.new($stderr))
  #
  # Raises InvalidArgument for another level.
  def self.log(logger, level: :warn)
    Log.set(logger, level)
  end
end
