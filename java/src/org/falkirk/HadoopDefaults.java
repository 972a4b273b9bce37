package org.falkirk;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapred.JobConf;

/**
 * Makes the Hadoop configuration of a Spark context smaller. Spark copies it for each file format and each query, and
 * serializes it for nearly every stage: 1,100 settings, nearly all of them defaults.
 *
 * <p>For each setting, Hadoop keeps the name of the file that it comes from, and writes each name with gzip. That took
 * three quarters of the time of writing and reading a configuration. Half of the defaults are YARN's.
 */
public final class HadoopDefaults {
  private static final String DEFAULTS = "-default.xml", YARN = "yarn.";

  private HadoopDefaults() {}

  /**
   * Forgets where defaults come from, and YARN's defaults. Settings that somebody has made stay as they are.
   *
   * <p>If a class adds a file of defaults later, Hadoop reads all files again, and all defaults are back. This does no
   * harm: the configuration is as large as before.
   *
   * @param conf the configuration
   * @param yarn whether YARN's defaults stay, because the application runs there
   * @return the number of settings that it has afterwards
   */
  public static int forget(Configuration conf, boolean yarn) throws ReflectiveOperationException {
    new JobConf(false); // its class adds files of defaults, after which Hadoop would read all files again
    List<String> defaults = new ArrayList<>();
    for (Map.Entry<String, String> each : conf) {
      String[] files = conf.getPropertySources(each.getKey());
      if (files != null && Arrays.stream(files).allMatch(file -> file.endsWith(DEFAULTS))) {
        defaults.add(each.getKey());
      }
    }
    Field sources = Configuration.class.getDeclaredField("updatingResource");
    sources.setAccessible(true);
    Map<?, ?> files = (Map<?, ?>) sources.get(conf);
    for (String name : defaults) {
      if (!yarn && name.startsWith(YARN)) {
        conf.unset(name);
      }
      files.remove(name);
    }
    return conf.size();
  }
}
