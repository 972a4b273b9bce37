package org.falkirk;

import java.util.Map;

/** Several tasks use a lane that is not fenced. No test here needs a broker. */
public final class LaneTest {
    public void aTaskThatFailsLeavesALaneThatIsSharedToTheOthers() {
        Map<String, String> options = Map.of(
            "region", "abandoned", "incarnation", "1", "lanes", "2", "headerKey", "falkirk",
            "kafka.bootstrap.servers", "localhost:1", "kafka.enable.idempotence", "false");
        LaneSettings settings = LaneSettings.of(options);
        Lane failed = Lanes.take(settings, 0, 1), other = Lanes.take(settings, 0, 1);
        Check.that(failed == other && settings.isShared(), "they share it");
        failed.abandon();
        failed.leave();
        other.finish(); // an error here would hide that of the failed task
        other.leave();
        Lanes.close("abandoned");
    }
}
